// The layouts of finding on a GPU, multiplied on the host as the tensor cores do.
#include "kernels/cuda/code_layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <set>

namespace rhapsode::kernels::cuda {
namespace {

TEST(CodeShape, HoldsEveryDimensionInBlocksThatThereAreKernelsFor) {
  const std::set<int> built = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16};
  for (int dimensions = 1; dimensions <= 16384; dimensions += 61) {
    const CodeShape shape = code_shape(dimensions);
    EXPECT_TRUE(built.count(shape.block_steps)) << dimensions;
    EXPECT_GE(shape.steps() * kStepBits, dimensions);
    EXPECT_GE(shape.steps() * kStepWords, shape.code_words());
  }
  EXPECT_EQ(code_shape(576).steps(), 5);
  EXPECT_EQ(code_shape(896).steps(), 7);
  EXPECT_EQ(code_shape(1536).steps(), 12);
  EXPECT_EQ(code_shape(3584).blocks, 2);
}

TEST(CodeLayout, EveryWordOfAGroupHasAPlaceOfItsOwn) {
  const CodeShape shape = code_shape(896);
  std::set<size_t> places;
  for (int chunk = 0; chunk < kGroupChunks; ++chunk) {
    for (int word = 0; word < shape.steps() * kStepWords; ++word) {
      const size_t at = code_word_at(shape, chunk, word);
      EXPECT_LT(at, shape.group_words());
      places.insert(at);
    }
  }
  EXPECT_EQ(places.size(), shape.group_words());
}

// sum over b of 2^b popcount(plane_b & code), read from the fragments as the product's lanes do.
int64_t product(const CodeShape& shape, const std::vector<uint32_t>& fragments,
                const std::vector<uint32_t>& group, int row, int chunk) {
  int64_t sum = 0;
  for (int block = 0; block < shape.blocks; ++block) {
    for (int plane = 0; plane < kCodePlanes; ++plane) {
      for (int step = 0; step < shape.block_steps; ++step) {
        for (int t = 0; t < 4; ++t) {
          const size_t lane = static_cast<size_t>(row % 8 * 4 + t);
          const size_t pair =
              static_cast<size_t>((block * kCodePlanes + plane) * shape.block_pairs() + step / 2);
          const uint32_t a =
              fragments[(pair * 32 + lane) * 4 + static_cast<size_t>(row / 8 + 2 * (step % 2))];
          const uint32_t b =
              group[code_word_at(shape, chunk, (block * shape.block_steps + step) * kStepWords + t)];
          sum += int64_t{std::popcount(a & b)} << (kCodePlanes - 1 - plane);
        }
      }
    }
  }
  return sum;
}

TEST(CodeLayout, FragmentsTimesGroupsAreTheDotProducts) {
  std::mt19937 random(3);
  for (const int dimensions : {1, 64, 130, 576, 896, 1536, 2200, 3584}) {
    const CodeShape shape = code_shape(dimensions);
    const auto d = static_cast<size_t>(dimensions);
    const size_t tokens = 1 + random() % kRowGroupTokens;
    std::vector<int8_t> levels(tokens * d);
    for (int8_t& level : levels) level = static_cast<int8_t>(2 * static_cast<int>(random() % 16) - 15);
    std::vector<uint32_t> fragments(shape.fragment_words(), 0xdeadbeef);
    pack_fragments(shape, levels, fragments);
    std::vector<uint32_t> group(shape.group_words());
    const int chunk = static_cast<int>(random() % kGroupChunks);
    std::vector<int> signs(d);
    int ones = 0;
    for (size_t i = 0; i < d; ++i) {
      signs[i] = random() % 2 ? 1 : -1;
      if (signs[i] < 0) continue;
      ++ones;
      group[code_word_at(shape, chunk, static_cast<int>(i / 32))] |= 1u << (i % 32);
    }
    for (size_t token = 0; token < tokens; ++token) {
      int64_t expected = 0;
      int64_t level_sum = 0;
      for (size_t i = 0; i < d; ++i) {
        expected += levels[token * d + i] * signs[i];
        level_sum += levels[token * d + i];
      }
      const int64_t common = product(shape, fragments, group, static_cast<int>(token), chunk);
      EXPECT_EQ(2 * (2 * common - 15 * ones) - level_sum, expected) << dimensions << " token " << token;
    }
    for (int row = static_cast<int>(tokens); row < kRowGroupTokens; ++row) {
      EXPECT_EQ(product(shape, fragments, group, row, chunk), 0);
    }
  }
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
