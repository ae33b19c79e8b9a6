// Which slots the decode rows of a batch read under their budgets, layer by layer (block-sparse decode).
//
// The meaning is reference::select() of page_bounds.h. Within a batch:
//   begin()   on the host: makes the bounds of written pages void; add() then takes the rows with a budget,
//             one selection for every row and list of pages that layers share; ready() sizes the workspace.
//   bound()   in the write phase of a layer: makes bounds that are missing, a page a thread.
//   select()  after the write phase: threads score runs of pages; whoever finishes the last run of a choice
//             makes it. selected() is valid once all threads are through.
// Bounds are made for all pages of a row with a budget but those written in this pass, so a page costs one
// reading of its keys once. Phases allocate nothing. Threads: begin(), add(), ready() alone; a phase by any
// number of threads at once. Cost of a selection: reads the bounds; O(groups) to choose.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/attend_kernels.h"
#include "kernels/page_bounds.h"

namespace rhapsode::kernels::cpu {

class PageSelector {
 public:
  PageSelector(const KvShape& shape, const SparseOptions& options);
  ~PageSelector();

  void begin(const BatchPlan& plan);
  // The row of a sequence with a budget over the pages that it reads in some layers. Returns the number of
  // the selection; -1: the budget covers all that the row sees.
  int add(int sequence, std::span<const ResolvedReference> references, int heads, int32_t window);
  void ready(int threads);
  bool any() const { return used_ > 0; }
  // References that a choice has at most.
  int most_references(int selection) const;

  void bound(int layer, int ith, int nth);
  // By one thread, before select() of each layer.
  void restart();
  // q: [rows][heads][head_dim] of the whole batch. `selections`: those of this layer.
  void select(const AttendSite& site, const float* q, int64_t q_stride, std::span<const int> selections,
              int ith);
  std::span<const ResolvedReference> selected(int selection, int kv_head) const;

 private:
  struct Selection;
  struct ThreadMemory;
  void score(Selection& selection, const AttendSite& site, const float* q, int item, ThreadMemory& memory);
  void choose(Selection& selection, int unit, ThreadMemory& memory);
  void collect(Selection& selection, int unit, std::span<const uint64_t> taken);

  KvShape shape_;
  SparseOptions options_;
  const BatchPlan* plan_ = nullptr;
  std::vector<std::unique_ptr<Selection>> selections_;  // the first used_ belong to this batch
  size_t used_ = 0;
  std::vector<const Page*> unbounded_;
  std::vector<std::unique_ptr<ThreadMemory>> threads_;
  alignas(64) std::atomic<int> next_item_{0};
};

}  // namespace rhapsode::kernels::cpu
