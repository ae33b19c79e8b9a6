// Making a model's whitening: the statistics of its early states over a sample of texts and questions.
//
// Texts are read, cut and run through the first fifth of the model like passages of a memory; their chunks
// give mean and covariance, the questions' tokens the question mean. A corpus other than the one searched
// costs at most a point of recall (docs/results.md), so one file per model is enough. Threads: one at a time.
// Cost: a fifth of a prefill of the texts, then O(d^3).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "index/whitening.h"
#include "recall/encoder.h"

namespace rhapsode::recall {

struct RoutingSample {
  std::vector<std::string> paths;      // of texts, as for adding them
  std::vector<std::string> questions;  // at least some hundred; none: sentences of the texts
  int64_t most_chunks = 40000;
  std::function<bool(int64_t chunks)> on_progress;  // false cancels
};

struct MadeWhitening {
  index::Whitening whitening;
  int64_t chunks = 0;
};

Result<MadeWhitening> make_whitening(PassRunner& runner, Encoder& encoder, const PromptFrame& frame,
                                     const RoutingSample& sample);

}  // namespace rhapsode::recall
