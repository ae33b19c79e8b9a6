#include "kernels/page_sum.h"

#include <gtest/gtest.h>

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

TEST(PageSum, IsTheOneThatFilesAndTestsKnow) {
  const std::vector<std::byte> zeros(16);
  EXPECT_EQ(page_sum({}), 0u);
  EXPECT_EQ(page_sum(zeros), mixed(0x9E3779B97F4A7C15ull) + mixed(2 * 0x9E3779B97F4A7C15ull));
  EXPECT_EQ(mixed(0x9E3779B97F4A7C15ull), 0xE220A8397B1DCDAFull);  // SplitMix64's first number from seed 0
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
