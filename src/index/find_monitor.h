// How good approximate finding is: a sample of the questions is answered a second time by the exact search.
//
// Which questions are sampled depends on their vectors alone (one in `one_in`), so that the same questions
// give the same report. Recall@k of a question is the share of the exact best k that was returned. Threads:
// any. Cost: an exact scan for each sampled question; nothing for the others.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>

#include "base/result.h"
#include "index/passage_index.h"

namespace rhapsode::index {

struct RecallReport {
  int64_t questions = 0;  // answered approximately
  int64_t sampled = 0;
  double recall_sum = 0;  // over the sampled ones
  double lowest = 1;
  double recall() const { return sampled == 0 ? 0 : recall_sum / static_cast<double>(sampled); }
};

class FindMonitor {
 public:
  explicit FindMonitor(uint32_t one_in = 32) : one_in_(one_in == 0 ? 1 : one_in) {}

  // Looks at an answer that find() gave; answers that are exact anyway are not counted.
  Status observe(const PassageIndex& index, const QuestionVectors& question, const Scope& scope,
                 CodeSource& codes, const FindOptions& options, const Found& found);
  bool samples(const QuestionVectors& question) const;
  RecallReport report() const;
  // The same, and begins anew.
  RecallReport take();
  // Adds what an earlier process counted.
  void add(const RecallReport& earlier);

 private:
  uint32_t one_in_;
  mutable std::mutex mutex_;
  RecallReport report_;
};

// The share of the ids of `exact` that are in `found`; 1 for none.
double recall_of(std::span<const ScanHit> found, std::span<const ScanHit> exact);

}  // namespace rhapsode::index
