// attend on the CPU: the meaning of reference/attend.cpp, vectorised with Highway.
//
// A batch runs in phases; a graph makes each phase of each layer one node, with a barrier of all threads
// between nodes:
//   begin()    once a batch, on the host: prepares rope rows, cuts every (sequence, KV head) into row blocks
//   and page
//              partitions, sizes the workspace. Phases allocate nothing.
//   write()    rotates and stores each thread's share of the new K and V rows, and makes missing page bounds;
//              thread 0 resets the work counters.
//   select()   only if selects(): chooses what rows with a read budget read in this layer (page_selection.h).
//   attend()   threads take (row block x partition) items off a shared counter, longest first.
//   combine()  merges split items in canonical order and normalises. Does nothing for items that were not
//   split. mass()     optional, after combine(): a second pass over the keys that sums probabilities per page
//   reference and slot.
// Deterministic: the partition is fixed by page index, whatever the batch, chunk or thread count, and rows
// that are not split are computed as if they were, so equal inputs give equal bytes (correctness ladder, rung
// 2). Otherwise the partition follows the amount of work and the number of threads. Instruction set: chosen
// at run time by Highway; see attend_target() and force_attend_target(). Threads: begin() alone; a phase by
// nth threads at once, every thread with its own ith. Cost: begin() O(rows + references); write() O(rows *
// kv_heads * head_dim); attend() two dot products a visible pair.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/attend.h"
#include "kernels/page_bounds.h"

namespace rhapsode::kernels::cpu {

// Pointers into the graph for one layer: all rows of the batch, float32, strides in floats from row to row.
struct AttendTensors {
  const float* q = nullptr;  // [rows][heads][head_dim], not rotated
  const float* k = nullptr;  // [rows][kv_heads][head_dim], not rotated
  const float* v = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  float* out = nullptr;  // [rows][heads][head_dim]
  int64_t out_stride = 0;
};

struct AttendOptions {
  int threads = 1;  // the most threads that will run a phase
  bool deterministic = false;
  bool keep_lse = false;  // makes lse() available
  bool mass = false;      // makes mass() and its results available; read budgets are then ignored
};

class CpuAttention {
 public:
  CpuAttention(const KvShape& shape, std::vector<AttendLayer> layers, const SparseOptions& sparse = {});
  ~CpuAttention();
  CpuAttention(const CpuAttention&) = delete;
  CpuAttention& operator=(const CpuAttention&) = delete;

  // `plan` is validated, and outlives the batch.
  void begin(const BatchPlan& plan, const AttendOptions& options);

  // Whether some row of the batch reads less than it sees.
  bool selects() const;

  void write(int layer, const AttendTensors& tensors, int ith, int nth);
  void select(int layer, const AttendTensors& tensors, int ith, int nth);
  void attend(int layer, const AttendTensors& tensors, int ith, int nth);
  void combine(int layer, const AttendTensors& tensors, int ith, int nth);
  void mass(int layer, const AttendTensors& tensors, int ith, int nth);

  // Of the last layer that ran: what the row of a sequence with a read budget read for a KV head. Empty: all.
  std::vector<PageReference> selected(int layer, int sequence, int kv_head) const;
  // Of the last layer that ran: [rows][heads]. mass() of that layer goes by what lies here.
  std::span<const float> lse() const;
  std::span<float> lse();
  // Summed over heads, rows and all layers since begin(): [references] and [references][64] of a sequence's
  // shared list.
  std::span<const double> mass_per_reference(int sequence) const;
  std::span<const double> mass_per_token(int sequence) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The instruction set the next attend() will use, in Highway's name ("AVX3_DL", "AVX2", "SSE4", "EMU128").
std::string attend_target();
// Limits the choice to targets the CPU supports; false if `name` is unknown or unsupported. Empty: no limit.
// Not thread-safe; for tests and `bench`.
bool force_attend_target(const std::string& name);

}  // namespace rhapsode::kernels::cpu
