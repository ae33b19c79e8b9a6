// A batch's plan cut by where the pages lie: every device gets all rows, and of the references and writes
// those of its own pages.
//
// Attention over a row's shares, merged by log-sum-exp, is attention over the whole plan. A share may show a
// row nothing: its part is then empty (out = 0, lse = -inf), so shares are not validated by themselves.
// Ownership: refers to the batch's pages, which outlive it. Threads: cut() alone; then read by any number.
// Errors: kInternal for a page of no device. Cost: O(rows + references) for each device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/context_plan.h"

namespace rhapsode::kernels {

class PlanShards {
 public:
  explicit PlanShards(int devices) : shares_(static_cast<size_t>(devices)) {}

  // `plan` is validated.
  Status cut(const BatchPlan& plan);

  int devices() const { return static_cast<int>(shares_.size()); }
  const BatchPlan& share(int device) const { return shares_[static_cast<size_t>(device)].plan; }
  // Of each reference in the share of a sequence's shared list: its number in the whole list.
  std::span<const int32_t> origins(int device, int sequence) const {
    return shares_[static_cast<size_t>(device)].origins[static_cast<size_t>(sequence)];
  }

 private:
  struct Share {
    BatchPlan plan;
    std::vector<std::vector<int32_t>> origins;  // [sequence]
  };
  std::vector<Share> shares_;
};

}  // namespace rhapsode::kernels
