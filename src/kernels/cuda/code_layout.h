// How codes and questions lie on the device for products of bits (mma.sync.m16n8k256, and.popc).
//
// Codes come in groups of 32 chunks: four tiles of eight, the columns of a product. A step is 128 bits; lane
// (g, t) = (lane / 4, lane % 4) holds word t of a step of chunk g of a tile. A product takes a pair of steps,
// whose words lie side by side for two tiles: 16 bytes a lane that go into the product's registers as they
// come. The last step of an odd number lies side by side for all four tiles. A question's token is four
// planes of bits, u = (level + 15) / 2 = sum of 2^b plane_b, and with c the code's bits
//
//   dot(level, 2c - 1) = 2 (2 sum_b 2^b popcount(plane_b & c) - 15 popcount(c)) - sum(level)
//
// where popcount(c) is kept beside the codes. Sixteen tokens are a row group: the rows of a product. Pure
// functions of the host; nothing here needs a device. Words are 32 bits, steps are padded with zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rhapsode::kernels::cuda {

inline constexpr int kGroupChunks = 32;
inline constexpr int kTileChunks = 8;
inline constexpr int kGroupTiles = kGroupChunks / kTileChunks;
inline constexpr int kStepBits = 128;
inline constexpr int kStepWords = kStepBits / 32;
inline constexpr int kCodePlanes = 4;
inline constexpr int kRowGroupTokens = 16;
inline constexpr int kMostRowGroups = 4;  // of one reading of the codes
inline constexpr int kMostBlockSteps = 16;

// The steps of a code: `blocks` runs of `block_steps`, which a kernel holds in registers at a time.
struct CodeShape {
  int dimensions = 0;
  int block_steps = 0;
  int blocks = 0;
  constexpr int steps() const { return block_steps * blocks; }
  constexpr int block_pairs() const { return (block_steps + 1) / 2; }  // a product takes two steps
  constexpr int code_words() const { return (dimensions + 63) / 64 * 2; }
  constexpr size_t group_words() const { return static_cast<size_t>(steps()) * kStepWords * kGroupChunks; }
  // Of one row group's planes.
  constexpr size_t fragment_words() const {
    return static_cast<size_t>(blocks) * kCodePlanes * static_cast<size_t>(block_pairs()) * 32 * 4;
  }
};

CodeShape code_shape(int dimensions);

// Where word `word` of chunk `chunk` of a group lies in it.
constexpr size_t code_word_at(const CodeShape& shape, int chunk, int word) {
  const int tile = chunk / kTileChunks;
  const int lane = chunk % kTileChunks * 4 + word % kStepWords;
  const int block = word / kStepWords / shape.block_steps;
  const int step = word / kStepWords % shape.block_steps;
  const bool alone = step + 1 == shape.block_steps && step % 2 == 0;
  const int unit = block * shape.block_steps + (alone ? step : step / 2 * 2 + tile / 2);
  const int element = alone ? tile : tile % 2 * 2 + step % 2;
  return (static_cast<size_t>(unit) * 32 + static_cast<size_t>(lane)) * 4 + static_cast<size_t>(element);
}

// The planes of up to 16 tokens as the left sides of the products: [blocks][planes, highest first][pairs]
// [lane][4]. `levels`: [tokens][dimensions]; `out`: fragment_words(), all of it written.
void pack_fragments(const CodeShape& shape, std::span<const int8_t> levels, std::span<uint32_t> out);

}  // namespace rhapsode::kernels::cuda
