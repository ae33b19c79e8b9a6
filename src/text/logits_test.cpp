#include "text/logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace rhapsode::text {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Logits, ArgmaxTakesTheLowestIdOnTiesAtEveryLength) {
  std::mt19937 random(1);
  for (size_t size = 1; size < 80; ++size) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> row(size);
      for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 7)) - 3;
      const auto expected = std::max_element(row.begin(), row.end()) - row.begin();
      auto best = argmax(row);
      ASSERT_TRUE(best.ok());
      ASSERT_EQ(*best, expected);
    }
  }
}

TEST(Logits, BrokenRowsAreErrors) {
  for (const size_t at : {0, 15, 16, 30, 32}) {
    std::vector<float> row(33, 1.0f);
    row[at] = std::nanf("");
    EXPECT_FALSE(argmax(row).ok()) << at;
    EXPECT_FALSE(log_softmax_of(row, 1).ok());
    EXPECT_FALSE(top_log_probs(row, 3).ok());
    row[at] = kInfinity;
    EXPECT_FALSE(argmax(row).ok()) << at;
    row[at] = -kInfinity;
    EXPECT_TRUE(argmax(row).ok()) << at;
  }
  EXPECT_FALSE(argmax(std::vector<float>(20, -kInfinity)).ok());
  EXPECT_FALSE(argmax({}).ok());
}

TEST(Logits, LogSoftmaxIsExactForLargeLogits) {
  const std::vector<float> row = {10000.0f, 10000.0f, 9999.0f, -kInfinity};
  auto first = log_softmax_of(row, 0);
  ASSERT_TRUE(first.ok());
  EXPECT_NEAR(*first, -std::log(2 + std::exp(-1.0)), 1e-12);
  EXPECT_EQ(*log_softmax_of(row, 3), -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(log_softmax_of(row, 4).ok());
  EXPECT_FALSE(log_softmax_of(row, -1).ok());
}

TEST(Logits, TopLogProbsAreOrderedAndSumToOne) {
  const std::vector<float> row = {1.0f, 3.0f, -kInfinity, 3.0f, 2.0f};
  auto top = top_log_probs(row, 9);
  ASSERT_TRUE(top.ok());
  ASSERT_EQ(top->size(), 4u);
  const int32_t order[] = {1, 3, 4, 0};
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*top)[i].token, order[i]);
    EXPECT_NEAR((*top)[i].log_prob, *log_softmax_of(row, order[i]), 1e-12);
    sum += std::exp((*top)[i].log_prob);
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_EQ(top_log_probs(row, 2)->size(), 2u);
  EXPECT_TRUE(top_log_probs(row, 0)->empty());
}

}  // namespace
}  // namespace rhapsode::text
