// Comparing two sources of logits, teacher-forced: rung 1 of the correctness ladder.
//
// Both read the same prompts; then both are fed the reference's likeliest token, step after step, and every
// pair of rows is compared. A different likeliest token counts as a *tie* when the reference's own gap
// between its two best is smaller than twice the largest difference of that row: then rounding alone decides.
// KL is KL(reference || subject). Threads: one at a time. Cost: both sources' evaluations, plus two passes
// over the vocabulary a row.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/logit_source.h"

namespace rhapsode::engine {

struct ParityReport {
  int rows = 0;
  int argmax_equal = 0;
  int ties = 0;        // of those that differ
  int mismatches = 0;  // differ and are no tie
  double max_abs_logit_diff = 0;
  double mean_kl = 0;

  double equal_share() const { return rows ? static_cast<double>(argmax_equal) / rows : 0; }
};

// `steps` rows are compared after each prompt (the one behind the prompt is the first).
// `progress`, if any, is told after each prompt.
Result<ParityReport> compare_logits(LogitSource& reference, LogitSource& subject,
                                    std::span<const std::vector<int32_t>> prompts, int steps,
                                    const std::function<void(size_t, const ParityReport&)>& progress = {});

}  // namespace rhapsode::engine
