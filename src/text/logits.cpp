#include "text/logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/result.h"

namespace rhapsode::text {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 16;

// The highest logit. Lanes keep the loop free of a chain of comparisons, so compilers vectorise it without
// -ffast-math.
Result<float> highest(std::span<const float> logits) {
  if (logits.empty()) return make_error(ErrorKind::kInvalidArgument, "there are no logits to choose from");
  std::array<float, kLanes> best;
  std::array<uint32_t, kLanes> broken{};
  best.fill(kImpossible);
  const size_t whole = logits.size() - logits.size() % kLanes;
  const float* row = logits.data();
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      broken[lane] |= static_cast<uint32_t>(x != x);
    }
  }
  for (size_t i = whole; i < logits.size(); ++i) {
    best[0] = row[i] > best[0] ? row[i] : best[0];
    broken[0] |= static_cast<uint32_t>(row[i] != row[i]);
  }
  if (std::any_of(broken.begin(), broken.end(), [](uint32_t flag) { return flag != 0; })) {
    return make_error(ErrorKind::kInternal, "a logit is not a number: the forward pass went wrong");
  }
  const float top = *std::max_element(best.begin(), best.end());
  if (std::isinf(top)) {
    return make_error(ErrorKind::kInternal, "the highest logit is {}: the forward pass went wrong", top);
  }
  return top;
}

}  // namespace

Result<int32_t> argmax(std::span<const float> logits) {
  RH_TRY(const float top, highest(logits));
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), top) - logits.begin());
}

Result<double> log_sum_exp(std::span<const float> logits) {
  RH_TRY(const float top, highest(logits));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

Result<double> entropy_of(std::span<const float> logits) {
  RH_TRY(const float top, highest(logits));
  double sum = 0;
  double weighted = 0;
  for (const float logit : logits) {
    const double below = static_cast<double>(logit) - top;
    const double weight = std::exp(below);
    sum += weight;
    if (weight > 0) weighted += weight * below;
  }
  return std::log(sum) - weighted / sum;
}

Result<double> log_softmax_of(std::span<const float> logits, int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) {
    return make_error(ErrorKind::kInvalidArgument, "token {} is outside a row of {} logits", token,
                      logits.size());
  }
  RH_TRY(const double norm, log_sum_exp(logits));
  return static_cast<double>(logits[static_cast<size_t>(token)]) - norm;
}

Result<std::vector<TokenLogProb>> top_log_probs(std::span<const float> logits, int count) {
  RH_TRY(const double norm, log_sum_exp(logits));
  const size_t wanted = std::min(static_cast<size_t>(std::max(count, 0)), logits.size());
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(wanted), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x > y || (x == y && a < b);
                    });
  std::vector<TokenLogProb> top;
  for (size_t i = 0; i < wanted; ++i) {
    const float logit = logits[static_cast<size_t>(ids[i])];
    if (logit == kImpossible) break;
    top.push_back({ids[i], logit - norm});
  }
  return top;
}

}  // namespace rhapsode::text
