#include "index/find_monitor.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace rhapsode::index {

double recall_of(std::span<const ScanHit> found, std::span<const ScanHit> exact) {
  if (exact.empty()) return 1.0;
  const auto there = std::count_if(exact.begin(), exact.end(), [&](const ScanHit& hit) {
    return std::any_of(found.begin(), found.end(), [&](const ScanHit& one) { return one.id == hit.id; });
  });
  return static_cast<double>(there) / static_cast<double>(exact.size());
}

bool FindMonitor::samples(const QuestionVectors& question) const {
  const uint64_t hash = XXH3_64bits(question.vectors.data(), question.vectors.size() * sizeof(float));
  return hash % one_in_ == 0;
}

Status FindMonitor::observe(const PassageIndex& index, const QuestionVectors& question, const Scope& scope,
                            CodeSource& codes, const FindOptions& options, const Found& found) {
  if (found.exact) return {};
  RecallReport one;
  one.questions = 1;
  if (samples(question)) {
    FindOptions everything = options;
    everything.exact = true;
    RH_TRY(const Found exact, index.find(question, scope, codes, everything));
    one.sampled = 1;
    one.lowest = recall_of(found.hits, exact.hits);
    one.recall_sum = one.lowest;
  }
  add(one);
  return {};
}

RecallReport FindMonitor::report() const {
  const std::lock_guard lock(mutex_);
  return report_;
}

RecallReport FindMonitor::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(report_, {});
}

void FindMonitor::add(const RecallReport& earlier) {
  const std::lock_guard lock(mutex_);
  report_.questions += earlier.questions;
  report_.sampled += earlier.sampled;
  report_.recall_sum += earlier.recall_sum;
  report_.lowest = std::min(report_.lowest, earlier.lowest);
}

}  // namespace rhapsode::index
