#include "index/scan_question.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace rhapsode::index {
namespace {

constexpr int kHighestLevel = 15;
constexpr int kCandidates = 24;             // scales that are tried for a token
constexpr float kSmallestCandidate = 0.4f;  // of the scale that reaches the largest value

// The odd level next to value / scale. Without calls and branches, so that the loops over it become vectors:
// adding 1.5 x 2^23 rounds to a whole number.
float level_of(float value, float inverse) {
  constexpr auto kHighest = static_cast<float>(kHighestLevel);
  constexpr float kRounder = 12582912.0f;
  const float level = std::min(std::max(value * inverse, -kHighest), kHighest);
  return 2.0f * (((level - 1.0f) * 0.5f + kRounder) - kRounder) + 1.0f;
}

double squared_error(std::span<const float> values, float scale) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> errors{};
  const float inverse = 1.0f / scale;
  const auto squared = [&](float value) {
    const float difference = value - scale * level_of(value, inverse);
    return difference * difference;
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) errors[lane] += squared(values[i + lane]);
  }
  for (; i < values.size(); ++i) errors[0] += squared(values[i]);
  double error = 0.0;
  for (const float one : errors) error += static_cast<double>(one);
  return error;
}

// Values are spread like a normal distribution: clipping the few largest makes all others finer.
float best_scale(std::span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float full = largest / static_cast<float>(kHighestLevel);
  if (!(full > 1e-30f) || !std::isfinite(full)) return 0.0f;
  float best = full;
  double best_error = squared_error(values, full);
  for (int i = 1; i < kCandidates; ++i) {
    const float share = 1.0f - (1.0f - kSmallestCandidate) * static_cast<float>(i) / kCandidates;
    const double error = squared_error(values, full * share);
    if (error < best_error) {
      best = full * share;
      best_error = error;
    }
  }
  return best;
}

}  // namespace

FourBitQuestion::FourBitQuestion(const QuestionVectors& question)
    : dimensions(question.dimensions), tokens(question.tokens()), words((question.dimensions + 63) / 64) {
  const auto d = static_cast<size_t>(dimensions);
  levels.resize(question.vectors.size());
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    const std::span<const float> values = std::span(question.vectors).subspan(t * d, d);
    const float scale = best_scale(values);
    scales.push_back(scale);
    for (size_t i = 0; i < d; ++i) {
      levels[t * d + i] = static_cast<int8_t>(scale > 0.0f ? level_of(values[i], 1.0f / scale) : 1.0f);
    }
  }
  set_planes();
}

FourBitQuestion::FourBitQuestion(int dimensions_in, std::vector<int8_t> levels_in,
                                 std::vector<float> scales_in)
    : dimensions(dimensions_in),
      tokens(static_cast<int>(scales_in.size())),
      words((dimensions_in + 63) / 64),
      levels(std::move(levels_in)),
      scales(std::move(scales_in)) {
  set_planes();
}

void FourBitQuestion::set_planes() {
  const auto d = static_cast<size_t>(dimensions);
  planes.assign(static_cast<size_t>(tokens) * static_cast<size_t>(words) * kPlanes, 0);
  for (size_t t = 0; t < static_cast<size_t>(tokens); ++t) {
    uint64_t* token_planes = planes.data() + t * static_cast<size_t>(words) * kPlanes;
    for (size_t i = 0; i < d; ++i) {
      const auto bits = static_cast<unsigned>((levels[t * d + i] + kHighestLevel) / 2);
      for (size_t b = 0; b < kPlanes; ++b) {
        token_planes[i / 64 * kPlanes + b] |= uint64_t{bits >> b & 1u} << (i % 64);
      }
    }
  }
}

SignQuestion::SignQuestion(const QuestionVectors& question) : FourBitQuestion(question) {
  const auto d = static_cast<size_t>(dimensions);
  for (size_t t = 0; t < scales.size(); ++t) {
    double sum = 0.0;
    for (const float value : std::span(question.vectors).subspan(t * d, d)) sum += std::abs(value);
    scales[t] = static_cast<float>(sum / static_cast<double>(dimensions));
  }
}

FloatQuestion::FloatQuestion(const QuestionVectors& question)
    : dimensions(question.dimensions),
      tokens(question.tokens()),
      words((question.dimensions + 63) / 64),
      scales(question.weights.size(), 1.0f) {
  const auto d = static_cast<size_t>(dimensions);
  const size_t blocks = (scales.size() + kTokenBlock - 1) / kTokenBlock;
  vectors.resize(blocks * d * kTokenBlock);
  for (size_t t = 0; t < scales.size(); ++t) {
    float* block = vectors.data() + t / kTokenBlock * d * kTokenBlock;
    for (size_t i = 0; i < d; ++i) block[i * kTokenBlock + t % kTokenBlock] = question.vectors[t * d + i];
  }
}

}  // namespace rhapsode::index
