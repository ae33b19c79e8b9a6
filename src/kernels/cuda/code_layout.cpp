#include "kernels/cuda/code_layout.h"

#include <algorithm>
#include <array>

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kHighestLevel = 15;

// [planes, lowest first][words of a padded code]
std::vector<uint32_t> planes_of(const CodeShape& shape, std::span<const int8_t> levels) {
  const auto words = static_cast<size_t>(shape.steps()) * kStepWords;
  std::vector<uint32_t> planes(words * kCodePlanes);
  for (size_t i = 0; i < levels.size(); ++i) {
    const auto bits = static_cast<uint32_t>((levels[i] + kHighestLevel) / 2);
    for (size_t b = 0; b < kCodePlanes; ++b) planes[b * words + i / 32] |= (bits >> b & 1u) << (i % 32);
  }
  return planes;
}

}  // namespace

CodeShape code_shape(int dimensions) {
  const int steps = std::max(1, (dimensions + kStepBits - 1) / kStepBits);
  CodeShape shape;
  shape.dimensions = dimensions;
  shape.blocks = (steps + kMostBlockSteps - 1) / kMostBlockSteps;
  shape.block_steps = (steps + shape.blocks - 1) / shape.blocks;
  // Sizes that there are kernels for: the odd ones above ten are rare.
  if (shape.block_steps > 10) shape.block_steps = (shape.block_steps + 1) / 2 * 2;
  return shape;
}

void pack_fragments(const CodeShape& shape, std::span<const int8_t> levels, std::span<uint32_t> out) {
  std::fill(out.begin(), out.end(), 0u);
  const auto d = static_cast<size_t>(shape.dimensions);
  const size_t tokens = levels.size() / d;
  const int block_words = shape.block_steps * kStepWords;
  for (size_t token = 0; token < tokens; ++token) {
    const std::vector<uint32_t> planes = planes_of(shape, levels.subspan(token * d, d));
    const size_t plane_words = planes.size() / kCodePlanes;
    for (size_t word = 0; word < plane_words; ++word) {
      const int block = static_cast<int>(word) / block_words;
      const int in_block = static_cast<int>(word) % block_words;
      // Register of a lane: bit 0 is the row's half, bit 1 the step's place in its pair.
      const size_t element = token / 8 + 2 * static_cast<size_t>(in_block / kStepWords % 2);
      const size_t lane = token % 8 * 4 + static_cast<size_t>(in_block % kStepWords);
      const auto pair = static_cast<size_t>(in_block / (2 * kStepWords));
      for (size_t b = 0; b < kCodePlanes; ++b) {
        const size_t plane = static_cast<size_t>(block) * kCodePlanes + (kCodePlanes - 1 - b);
        const size_t at = (plane * static_cast<size_t>(shape.block_pairs()) + pair) * 32 + lane;
        out[at * 4 + element] = planes[b * plane_words + word];
      }
    }
  }
}

}  // namespace rhapsode::kernels::cuda
