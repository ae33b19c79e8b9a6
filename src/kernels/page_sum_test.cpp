#include "kernels/page_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace rhapsode::kernels {
namespace {

std::vector<std::byte> random_page(size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> page(bytes);
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

TEST(PageSum, AddsWordsAndProductsOfTheirHalves) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;
  constexpr uint64_t kZero = 0x9E3779B9ull * 0x7F4A7C15ull;
  const std::vector<std::byte> zeros(8);
  EXPECT_EQ(page_sum({}), 0u);
  EXPECT_EQ(page_sum(zeros), kZero);
  EXPECT_EQ(word_sum(kGolden, 0), kGolden);
  EXPECT_EQ(word_sum(~uint64_t{0} ^ (2 * kGolden), 1),
            (~uint64_t{0} ^ (2 * kGolden)) + 0xFFFFFFFFull * 0xFFFFFFFFull);
}

TEST(PageSum, IsTheSameForEveryInstructionSetAndSize) {
  int targets = 0;
  for (const char* target : {"AVX3_DL", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "SCALAR"}) {
    if (!force_page_sum_target(target)) continue;
    ++targets;
    for (const size_t words : {0, 1, 7, 8, 31, 32, 33, 127, 512, 1001}) {
      const std::vector<std::byte> page = random_page(words * sizeof(uint64_t));
      uint64_t sum = 0;
      for (size_t i = 0; i < words; ++i) {
        uint64_t word = 0;
        std::memcpy(&word, page.data() + i * sizeof word, sizeof word);
        sum += word_sum(word, i);
      }
      EXPECT_EQ(page_sum(page), sum) << target << ", " << words << " words";
    }
  }
  force_page_sum_target("");
  EXPECT_GT(targets, 0);
}

TEST(PageSum, NoticesEverySingleBitAndSwappedWords) {
  std::vector<std::byte> page = random_page(256);
  const uint64_t sum = page_sum(page);
  for (size_t bit = 0; bit < page.size() * 8; ++bit) {
    page[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(page_sum(page), sum) << bit;
    page[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  std::swap_ranges(page.begin(), page.begin() + 8, page.begin() + 8);
  EXPECT_NE(page_sum(page), sum);
}

TEST(PageSum, NoticesTheSameBitInTwoWords) {
  std::vector<std::byte> page = random_page(4096);
  const uint64_t sum = page_sum(page);
  for (size_t word = 8; word < page.size(); word += 8) {
    for (const size_t at : {size_t{7}, word + 7}) page[at] ^= std::byte{0x80};
    EXPECT_NE(page_sum(page), sum) << word;
    for (const size_t at : {size_t{7}, word + 7}) page[at] ^= std::byte{0x80};
  }
}

}  // namespace
}  // namespace rhapsode::kernels
