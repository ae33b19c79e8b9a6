// The partial result of softmax attention over a part of the keys, and its merge.
//
// For scores s_j and values v_j over a set J:  max = max_j s_j,  sum = sum_j exp(s_j - max),  out = sum_j
// exp(s_j - max) v_j (not normalised). The empty set is max = -inf, sum = 0, out = 0. merge() is exact up to
// rounding, associative and commutative, so parts may lie on different tiers, devices or ranks; a fixed order
// of merging gives fixed bytes. log-sum-exp = max + log(sum). Source: online softmax (arXiv 1805.02867), used
// as in FlashInfer's merge_state.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace rhapsode::kernels {

struct AttentionState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;

  bool empty() const { return sum == 0.0f; }
  float log_sum_exp() const {
    return empty() ? -std::numeric_limits<float>::infinity() : max + std::log(sum);
  }
};

// Adds `other` (state and unnormalised output) into `into`. Both outputs have the same size; no aliasing.
void merge(AttentionState& into, std::span<float> into_out, const AttentionState& other,
           std::span<const float> other_out);

// Divides by the sum: the attention output. An empty state gives zeros.
void normalize(const AttentionState& state, std::span<float> out);

// Merge for parts that are already normalised and carry their log-sum-exp (results of other devices or
// ranks). Returns the merged log-sum-exp; -inf parts count as empty.
float merge_normalized(float into_lse, std::span<float> into_out, float other_lse,
                       std::span<const float> other_out);

}  // namespace rhapsode::kernels
