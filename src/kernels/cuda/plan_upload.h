// Packs one batch, its context plan included, into the bytes of plan_layout.h. Pure host code.
//
// Lists of layers: the sequences' shared lists are row 0 of `lists`; a layer in which some sequence reads a
// list of its own has a row for itself. Shifts: every distinct shift of the batch has one row of the shift
// table, so that a query is turned into a page's frame by one row of sines whatever its position. Threads:
// one at a time. Cost: O(rows + references); the buffer's capacity is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/context_plan.h"
#include "kernels/cuda/plan_layout.h"
#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

class PlanPacker {
 public:
  explicit PlanPacker(int layers, const TileRule& rule = {}) : layers_(layers), rule_(rule) {}

  // batch.plan is validated.
  void pack(const BatchInput& batch);

  std::span<const std::byte> bytes() const { return bytes_; }
  const PlanOffsets& offsets() const { return offsets_; }
  const PlanSizes& sizes() const { return sizes_; }
  // The row of `lists` that a layer reads.
  int32_t list_row(int layer) const { return layer_lists_[static_cast<size_t>(layer)]; }
  bool has_own_lists() const { return static_cast<int>(lists_.size()) > sizes_.sequences; }
  // The packed shared list of a sequence, and which of the plan's references each packed one is: references
  // that show nothing are left out.
  DeviceList shared_list(int sequence) const { return lists_[static_cast<size_t>(sequence)]; }
  int32_t origin(int32_t reference) const { return origins_[static_cast<size_t>(reference)]; }
  // The latest arrival among the pages that are read (Page::arrival).
  uint64_t arrival() const { return arrival_; }
  int reference_count() const { return static_cast<int>(references_.size()); }

 private:
  void append_writes(const BatchPlan& plan);
  void append_sequences(const BatchPlan& plan);
  void append_tiles(const BatchPlan& plan, std::span<const int32_t> output_rows);
  void append_parts(const BatchPlan& plan, std::span<const DeviceTile> wide);
  std::vector<int32_t> page_begins(int32_t sequence) const;
  void append_runs(const BatchPlan& plan);
  void add_lists(const BatchPlan& plan);
  DeviceList add_list(std::span<const PageReference> references);
  int32_t shift_row(int32_t shift);
  template <typename T>
  size_t append(std::span<const T> values);

  int layers_;
  TileRule rule_;
  PlanOffsets offsets_;
  PlanSizes sizes_;
  std::vector<std::byte> bytes_;
  std::vector<DeviceReference> references_;
  std::vector<int32_t> origins_;
  std::vector<DeviceList> lists_;
  std::vector<int32_t> layer_lists_;
  std::vector<int32_t> gathered_;
  std::vector<int32_t> shifts_;
  std::unordered_map<int32_t, int32_t> shift_rows_;
  std::unordered_map<const Page*, uint64_t> fresh_;  // slots that this pass writes
  uint64_t arrival_ = 0;
  int32_t last_shift_ = 0;
  int32_t last_shift_row_ = -1;
};

}  // namespace rhapsode::kernels::cuda
