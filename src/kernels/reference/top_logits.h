// The largest logits of a row by sorting all of it: what defines kernels/top_logits.h. Threads: pure.
// Cost: O(n log n).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/top_logits.h"

namespace rhapsode::kernels::reference {

struct SortedLogits {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  double exp_sum = 0;
  int32_t possible = 0;
  bool broken = false;
};

SortedLogits top_logits(std::span<const float> row, int count = kTopLogits);

}  // namespace rhapsode::kernels::reference
