#include "recall/judge.h"

#include <algorithm>

#include "recall/moments.h"

namespace rhapsode::recall {

namespace {

constexpr double kFindWeight = 0.5;

}  // namespace

Result<std::vector<double>> LikelihoodJudge::scores(const std::string& question,
                                                    std::span<const Candidate> candidates) {
  std::vector<Reading> readings;
  for (const Candidate& candidate : candidates) readings.push_back({candidate});
  readings.emplace_back();
  RH_TRY(std::vector<double> sums, likelihood_.behind(question, readings));
  if (sums.empty()) return sums;
  const double nothing = sums.back();
  sums.pop_back();
  for (double& sum : sums) sum -= nothing;
  return sums;
}

void judge_again(std::vector<Ranked>& ranked) {
  std::vector<double> judged, found;
  for (const Ranked& one : ranked) {
    if (one.judged) judged.push_back(*one.judged);
    found.push_back(one.score);
  }
  const Moments by_judge = moments_of(judged), by_find = moments_of(found);
  for (Ranked& one : ranked) {
    one.score = (one.judged ? by_judge.z(*one.judged) : 0) + kFindWeight * by_find.z(one.score);
  }
  std::sort(ranked.begin(), ranked.end(), ranks_before);
}

}  // namespace rhapsode::recall
