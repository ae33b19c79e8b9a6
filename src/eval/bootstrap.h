// Means with bootstrap intervals: questions are drawn anew with replacement, the mean taken each time, and
// the middle 95 % of those means kept.
//
// The same values and seed give the same interval on every machine. Threads: any. Cost: 2,000 x values.
// Errors: none; no values give count 0, one value an interval of no width.
#pragma once

#include <cstdint>
#include <span>

namespace rhapsode::eval {

struct Interval {
  double mean = 0;
  double low = 0;  // 2.5th and 97.5th percentile of the means
  double high = 0;
  int count = 0;

  double half_width() const { return (high - low) / 2; }
  // A difference is resolved when its interval leaves out 0.
  bool excludes_zero() const { return count > 1 && (low > 0 || high < 0); }
};

Interval bootstrap_mean(std::span<const double> values, uint64_t seed);
// Of a[i] - b[i]: the two readings of one question stay together. Equal sizes.
Interval bootstrap_difference(std::span<const double> a, std::span<const double> b, uint64_t seed);

}  // namespace rhapsode::eval
