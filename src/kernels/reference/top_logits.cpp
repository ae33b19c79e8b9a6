#include "kernels/reference/top_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rhapsode::kernels::reference {

SortedLogits top_logits(std::span<const float> row, int count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  SortedLogits top;
  for (size_t i = 0; i < row.size(); ++i) {
    top.broken |= !(row[i] < kInfinity);
    if (row[i] > -kInfinity) top.tokens.push_back(static_cast<int32_t>(i));
  }
  top.possible = static_cast<int32_t>(top.tokens.size());
  if (top.broken) {
    top.tokens.clear();
    return top;
  }
  const auto logit = [&](int32_t token) { return row[static_cast<size_t>(token)]; };
  std::stable_sort(top.tokens.begin(), top.tokens.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  long double sum = 0;  // a million rounded additions would cost what is promised
  for (const int32_t token : top.tokens) {
    sum += std::exp(static_cast<double>(logit(token)) - static_cast<double>(logit(top.tokens[0])));
  }
  top.exp_sum = static_cast<double>(sum);
  if (top.tokens.size() > static_cast<size_t>(count)) top.tokens.resize(static_cast<size_t>(count));
  for (const int32_t token : top.tokens) top.logits.push_back(logit(token));
  return top;
}

}  // namespace rhapsode::kernels::reference
