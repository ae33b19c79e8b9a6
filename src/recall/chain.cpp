#include "recall/chain.h"

#include <algorithm>
#include <set>

#include "recall/moments.h"

namespace rhapsode::recall {

namespace {

constexpr double kLinkBonus = 1.0;  // evidence: experiment E

bool contains(std::span<const size_t> numbers, size_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

bool is_linked(const ChainCandidate& candidate, std::span<const size_t> chosen) {
  return std::any_of(chosen.begin(), chosen.end(),
                     [&](size_t number) { return contains(candidate.linked, number); });
}

}  // namespace

Result<Chain> EvidenceChain::build(const std::string& question, std::span<const ChainCandidate> candidates,
                                   size_t first, const ChainLimits& limits) {
  Chain chain;
  if (first >= candidates.size()) return chain;
  chain.chosen.push_back(first);
  Reading read = {candidates[first].kv};
  double now = 0;  // the question's likelihood behind what is chosen
  while (static_cast<int>(chain.chosen.size()) < limits.passages) {
    std::vector<size_t> others;
    std::vector<Reading> readings;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (contains(chain.chosen, i)) continue;
      others.push_back(i);
      readings.push_back(read);
      readings.back().push_back(candidates[i].kv);
    }
    if (others.empty()) break;
    const bool starts = chain.gains.empty();
    if (starts) readings.insert(readings.end(), {read, Reading{}});
    RH_TRY(const std::vector<double> sums, likelihood_.behind(question, readings));
    if (sums.empty()) break;
    if (starts) {
      now = sums[others.size()];
      chain.gains.push_back(now - sums.back());
      chain.seconds.resize(candidates.size());
    }
    std::vector<double> gains(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(others.size()));
    for (double& gain : gains) gain -= now;
    const Moments moments = moments_of(gains);
    size_t best = others.size();
    double best_score = 0;
    for (size_t n = 0; n < others.size(); ++n) {
      const ChainCandidate& candidate = candidates[others[n]];
      const double linked = is_linked(candidate, chain.chosen) ? kLinkBonus : 0.0;
      const double score = moments.z(gains[n]) + candidate.prior + linked;
      if (starts) chain.seconds[others[n]] = score;
      if (gains[n] < limits.cost || (best < others.size() && score <= best_score)) continue;
      best = n;
      best_score = score;
    }
    if (best == others.size()) break;
    chain.chosen.push_back(others[best]);
    chain.gains.push_back(gains[best]);
    now += gains[best];
    read.push_back(candidates[others[best]].kv);
  }
  return chain;
}

std::vector<Ranked> chain_first(std::span<const Ranked> ranked, std::span<const Ranked> pool,
                                const Chain& chain) {
  std::vector<Ranked> joined(ranked.begin(), ranked.end());
  if (chain.chosen.size() < 2) {
    for (Ranked& one : joined) {
      if (!chain.chosen.empty() && one.passage == pool[chain.chosen.front()].passage) {
        one.chained = pool[chain.chosen.front()].chained;
      }
    }
    return joined;
  }
  joined.clear();
  std::vector<size_t> others;
  std::set<int64_t> taken;
  for (const size_t number : chain.chosen) joined.push_back(pool[number]);
  for (size_t i = 0; i < pool.size(); ++i) {
    taken.insert(pool[i].passage);
    if (!contains(chain.chosen, i)) others.push_back(i);
  }
  std::stable_sort(others.begin(), others.end(),
                   [&](size_t a, size_t b) { return chain.seconds[a] > chain.seconds[b]; });
  for (const size_t number : others) joined.push_back(pool[number]);
  for (const Ranked& one : ranked) {
    if (!taken.contains(one.passage)) joined.push_back(one);
  }
  for (size_t i = 0; i < joined.size(); ++i) joined[i].score = 1.0 / static_cast<double>(i + 1);
  return joined;
}

}  // namespace rhapsode::recall
