#include "kernels/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace rhapsode::kernels {
namespace {

constexpr int kBlockPositions =
    256;  // one allocation of the table; small enough for sparse negative positions

// The pair whose wavelength makes `rotations` turns within the original context (YaRN, section 3.2).
double yarn_correction_pair(const RopeSpec& spec, double rotations) {
  return spec.dimensions * std::log(spec.yarn_original_context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(spec.theta));
}

// 1 where frequencies stay as trained, 0 where they are interpolated, a ramp between.
double yarn_ramp(double low, double high, int pair) {
  const double y = (pair - low) / std::max(0.001, high - low);
  return 1.0 - std::clamp(y, 0.0, 1.0);
}

int32_t block_of(int32_t position) {  // floor division, also below 0
  return position >= 0 ? position / kBlockPositions : -((-(position + 1)) / kBlockPositions) - 1;
}

}  // namespace

std::vector<double> RopeSpec::frequencies() const {
  const int pairs = dimensions / 2;
  std::vector<double> result(static_cast<size_t>(pairs));
  double low = 0.0;
  double high = 0.0;
  if (yarn_extrapolation != 0.0) {
    low = std::max(0.0, std::floor(yarn_correction_pair(*this, yarn_beta_fast)));
    high = std::min(dimensions - 1.0, std::ceil(yarn_correction_pair(*this, yarn_beta_slow)));
  }
  for (int pair = 0; pair < pairs; ++pair) {
    const auto index = static_cast<size_t>(pair);
    double trained = std::pow(theta, -2.0 * pair / dimensions);
    if (!factors.empty()) trained /= factors[index];
    const double scaled = trained * frequency_scale;
    const double mix = yarn_extrapolation == 0.0 ? 0.0 : yarn_ramp(low, high, pair) * yarn_extrapolation;
    result[index] = scaled * (1.0 - mix) + trained * mix;
  }
  return result;
}

double RopeSpec::magnitude() const {
  if (yarn_extrapolation == 0.0) return yarn_attention_factor;
  return yarn_attention_factor * (1.0 + 0.1 * std::log(1.0 / frequency_scale));
}

// A directory of blocks around position 0; entries stay null until a range that touches them is prepared.
struct RopeTable::Blocks {
  int32_t first = 0;  // block number of directory[0]
  std::vector<std::unique_ptr<float[]>> directory;

  void cover(int32_t first_block, int32_t last_block) {
    if (directory.empty()) first = first_block;
    if (first_block < first) {
      std::vector<std::unique_ptr<float[]>> grown(static_cast<size_t>(first - first_block));
      std::move(directory.begin(), directory.end(), std::back_inserter(grown));
      directory = std::move(grown);
      first = first_block;
    }
    const auto needed = static_cast<size_t>(last_block - first) + 1;
    if (directory.size() < needed) directory.resize(needed);
  }
};

RopeTable::RopeTable(RopeSpec spec)
    : spec_(std::move(spec)), frequencies_(spec_.frequencies()), blocks_(std::make_unique<Blocks>()) {}
RopeTable::~RopeTable() = default;
RopeTable::RopeTable(RopeTable&&) noexcept = default;
RopeTable& RopeTable::operator=(RopeTable&&) noexcept = default;

void RopeTable::prepare(int32_t first, int32_t last) {
  assert(first <= last);
  const int32_t first_block = block_of(first);
  const int32_t last_block = block_of(last);
  blocks_->cover(first_block, last_block);
  const size_t pairs = frequencies_.size();
  const double magnitude = spec_.magnitude();
  for (int32_t block = first_block; block <= last_block; ++block) {
    auto& rows = blocks_->directory[static_cast<size_t>(block - blocks_->first)];
    if (rows) continue;
    rows = std::make_unique<float[]>(kBlockPositions * 2 * pairs);
    for (int slot = 0; slot < kBlockPositions; ++slot) {
      const double position = static_cast<double>(block) * kBlockPositions + slot;
      float* row = rows.get() + static_cast<size_t>(slot) * 2 * pairs;
      for (size_t pair = 0; pair < pairs; ++pair) {
        row[pair] = static_cast<float>(std::cos(position * frequencies_[pair]) * magnitude);
        row[pairs + pair] = static_cast<float>(std::sin(position * frequencies_[pair]) * magnitude);
      }
    }
  }
}

const float* RopeTable::row(int32_t position) const {
  const int32_t block = block_of(position);
  const auto index = static_cast<size_t>(block - blocks_->first);
  assert(block >= blocks_->first && index < blocks_->directory.size() && blocks_->directory[index]);
  return blocks_->directory[index].get() +
         static_cast<size_t>(position - block * kBlockPositions) * 2 * frequencies_.size();
}

void RopeTable::rotate(float* head, int32_t position) const {
  const size_t pairs = frequencies_.size();
  const float* cosines = row(position);
  const float* sines = cosines + pairs;
  const bool adjacent = spec_.pairing == RopePairing::kAdjacent;
  for (size_t pair = 0; pair < pairs; ++pair) {
    float& a = head[adjacent ? 2 * pair : pair];
    float& b = head[adjacent ? 2 * pair + 1 : pair + pairs];
    const float rotated = a * cosines[pair] - b * sines[pair];
    b = a * sines[pair] + b * cosines[pair];
    a = rotated;
  }
}

}  // namespace rhapsode::kernels
