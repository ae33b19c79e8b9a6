// The largest logits of a row, found where the row lies, so that a row of a vocabulary need not be brought.
//
// Exact: larger logit first, on ties the lower token; minus infinity is no logit to choose. Made by back ends
// that find_top_logits() (graph.h); reference/top_logits.h defines them. Shape: at most kTopLogits of a row.
// Ownership: views of the back end's memory. Errors: a row with NaN or plus infinity in it is `broken` and
// lists nothing.
#pragma once

#include <cstdint>
#include <span>

namespace rhapsode::kernels {

inline constexpr int kTopLogits = 256;

struct TopLogits {
  std::span<const int32_t> tokens;
  std::span<const float> logits;  // of those tokens
  // Over the whole row, of exp(logit - the largest logit); relative error below 2^-36 for a million logits.
  double exp_sum = 0;
  int32_t possible = 0;  // logits of the row that are not minus infinity
  bool broken = false;
};

}  // namespace rhapsode::kernels
