// Mean and deviation of a signal, so that signals of different scales can be joined. Pure; linear in the
// values.
#pragma once

#include <cmath>
#include <span>

namespace rhapsode::recall {

struct Moments {
  double mean = 0;
  double deviation = 1;
  double z(double value) const { return (value - mean) / deviation; }
};

inline Moments moments_of(std::span<const double> values) {
  if (values.empty()) return {};
  double sum = 0;
  for (double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  const double deviation =
      values.size() < 2 ? 0 : std::sqrt(squares / static_cast<double>(values.size() - 1));
  // A signal that is the same everywhere ranks nothing.
  return {mean, deviation > 1e-9 ? deviation : 1.0};
}

}  // namespace rhapsode::recall
