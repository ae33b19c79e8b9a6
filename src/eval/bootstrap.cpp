#include "eval/bootstrap.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <vector>

#include "eval/random.h"

namespace rhapsode::eval {
namespace {

constexpr int kResamples = 2000;

// Linear between neighbours, as numpy's percentile does.
double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Interval bootstrap_mean(std::span<const double> values, uint64_t seed) {
  Interval interval;
  interval.count = static_cast<int>(values.size());
  if (values.empty()) return interval;
  double sum = 0;
  for (const double value : values) sum += value;
  const auto size = static_cast<double>(values.size());
  interval.mean = sum / size;
  Random random(seed);
  std::vector<double> means(kResamples);
  for (double& mean : means) {
    double total = 0;
    for (size_t i = 0; i < values.size(); ++i) total += values[random.below(values.size())];
    mean = total / size;
  }
  std::sort(means.begin(), means.end());
  interval.low = percentile(means, 0.025);
  interval.high = percentile(means, 0.975);
  return interval;
}

Interval bootstrap_difference(std::span<const double> a, std::span<const double> b, uint64_t seed) {
  assert(a.size() == b.size());
  std::vector<double> differences(std::min(a.size(), b.size()));
  for (size_t i = 0; i < differences.size(); ++i) differences[i] = a[i] - b[i];
  return bootstrap_mean(differences, seed);
}

}  // namespace rhapsode::eval
