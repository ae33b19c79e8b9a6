// Reading a row of logits: the likeliest token and log-probabilities.
//
// A row is float[vocabulary]. Minus infinity means "impossible" and is allowed; NaN and plus infinity mean
// that the forward pass went wrong and are an error, never a silent choice. On ties the lowest id wins.
// Threads: pure functions. Errors: kInternal for broken logits, kInvalidArgument for an id outside the row.
// Cost: one pass over the row each; exponentials and sums in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rhapsode/result.h"

namespace rhapsode::text {

struct TokenLogProb {
  int32_t token;
  double log_prob;  // natural logarithm
};

Result<int32_t> argmax(std::span<const float> logits);

// log(sum(exp(logits))): log-probabilities are logits minus this.
Result<double> log_sum_exp(std::span<const float> logits);

Result<double> log_softmax_of(std::span<const float> logits, int32_t token);

// Of the distribution, in nats.
Result<double> entropy_of(std::span<const float> logits);

// The `count` likeliest tokens, likeliest first; fewer if the row has fewer possible ones.
Result<std::vector<TokenLogProb>> top_log_probs(std::span<const float> logits, int count);

}  // namespace rhapsode::text
