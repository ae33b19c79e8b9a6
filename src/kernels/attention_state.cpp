#include "kernels/attention_state.h"

#include <algorithm>
#include <cassert>

namespace rhapsode::kernels {

void merge(AttentionState& into, std::span<float> into_out, const AttentionState& other,
           std::span<const float> other_out) {
  assert(into_out.size() == other_out.size());
  if (other.empty()) return;
  if (into.empty()) {
    into = other;
    std::copy(other_out.begin(), other_out.end(), into_out.begin());
    return;
  }
  const float max = std::max(into.max, other.max);
  const float keep = std::exp(into.max - max);
  const float add = std::exp(other.max - max);
  into.max = max;
  into.sum = into.sum * keep + other.sum * add;
  for (size_t i = 0; i < into_out.size(); ++i) into_out[i] = into_out[i] * keep + other_out[i] * add;
}

void normalize(const AttentionState& state, std::span<float> out) {
  if (state.empty()) {
    std::fill(out.begin(), out.end(), 0.0f);
    return;
  }
  const float inverse = 1.0f / state.sum;
  for (float& value : out) value *= inverse;
}

float merge_normalized(float into_lse, std::span<float> into_out, float other_lse,
                       std::span<const float> other_out) {
  assert(into_out.size() == other_out.size());
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  if (other_lse == kEmpty) return into_lse;
  if (into_lse == kEmpty) {
    std::copy(other_out.begin(), other_out.end(), into_out.begin());
    return other_lse;
  }
  const float max = std::max(into_lse, other_lse);
  const float keep = std::exp(into_lse - max);
  const float add = std::exp(other_lse - max);
  const float sum = keep + add;
  for (size_t i = 0; i < into_out.size(); ++i) {
    into_out[i] = into_out[i] * (keep / sum) + other_out[i] * (add / sum);
  }
  return max + std::log(sum);
}

}  // namespace rhapsode::kernels
