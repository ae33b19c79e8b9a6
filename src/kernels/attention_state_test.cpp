#include "kernels/attention_state.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace rhapsode::kernels {
namespace {

constexpr size_t kDimensions = 24;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Keys {
  std::vector<float> scores;
  std::vector<std::vector<float>> values;
};

Keys random_keys(std::mt19937& random, size_t count, float spread) {
  std::normal_distribution<float> normal;
  Keys keys;
  for (size_t j = 0; j < count; ++j) {
    keys.scores.push_back(normal(random) * spread);
    keys.values.emplace_back();
    for (size_t i = 0; i < kDimensions; ++i) keys.values.back().push_back(normal(random));
  }
  return keys;
}

struct Part {
  AttentionState state;
  std::vector<float> out = std::vector<float>(kDimensions);
};

Part attend(const Keys& keys, size_t begin, size_t end) {
  Part part;
  for (size_t j = begin; j < end; ++j) part.state.max = std::max(part.state.max, keys.scores[j]);
  for (size_t j = begin; j < end; ++j) {
    const float weight = std::exp(keys.scores[j] - part.state.max);
    part.state.sum += weight;
    for (size_t i = 0; i < kDimensions; ++i) part.out[i] += weight * keys.values[j][i];
  }
  return part;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6f);
}

class AttentionStateSpread : public ::testing::TestWithParam<float> {};
INSTANTIATE_TEST_SUITE_P(Spreads, AttentionStateSpread, ::testing::Values(0.1f, 3.0f, 100.0f));

TEST_P(AttentionStateSpread, MergedPartsEqualOnePass) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 50; ++repeat) {
    const size_t count = 1 + random() % 40;
    const Keys keys = random_keys(random, count, GetParam());
    Part whole = attend(keys, 0, count);
    Part merged;
    for (size_t begin = 0; begin < count;) {
      const size_t end = std::min(count, begin + random() % 9);  // empty parts too
      const Part part = attend(keys, begin, end);
      merge(merged.state, merged.out, part.state, part.out);
      begin = end;
    }
    EXPECT_NEAR(merged.state.log_sum_exp(), whole.state.log_sum_exp(), 1e-5f * std::max(1.0f, GetParam()));
    normalize(whole.state, whole.out);
    normalize(merged.state, merged.out);
    expect_near(merged.out, whole.out);
  }
}

TEST_P(AttentionStateSpread, NormalizedPartsMergeByTheirLogSumExp) {
  std::mt19937 random(2);
  const Keys keys = random_keys(random, 30, GetParam());
  Part whole = attend(keys, 0, 30);
  Part left = attend(keys, 0, 11);
  Part right = attend(keys, 11, 30);
  normalize(whole.state, whole.out);
  normalize(left.state, left.out);
  normalize(right.state, right.out);
  const float lse =
      merge_normalized(left.state.log_sum_exp(), left.out, right.state.log_sum_exp(), right.out);
  EXPECT_NEAR(lse, whole.state.log_sum_exp(), 1e-5f * std::max(1.0f, GetParam()));
  expect_near(left.out, whole.out);
}

TEST(AttentionState, TheOrderOfPartsDoesNotMatterBeyondRounding) {
  std::mt19937 random(3);
  const Keys keys = random_keys(random, 30, 2.0f);
  const Part a = attend(keys, 0, 10);
  const Part b = attend(keys, 10, 20);
  const Part c = attend(keys, 20, 30);
  Part left = a;
  merge(left.state, left.out, b.state, b.out);
  merge(left.state, left.out, c.state, c.out);
  Part right = c;
  Part tail = b;
  merge(tail.state, tail.out, a.state, a.out);
  merge(right.state, right.out, tail.state, tail.out);
  normalize(left.state, left.out);
  normalize(right.state, right.out);
  expect_near(left.out, right.out);
}

TEST(AttentionState, EmptyPartsChangeNothing) {
  std::mt19937 random(4);
  const Keys keys = random_keys(random, 5, 1.0f);
  const Part part = attend(keys, 0, 5);
  const Part empty;
  EXPECT_TRUE(empty.state.empty());
  EXPECT_EQ(empty.state.log_sum_exp(), kMinusInfinity);

  Part merged = part;
  merge(merged.state, merged.out, empty.state, empty.out);
  EXPECT_EQ(merged.out, part.out);
  Part from_empty;
  merge(from_empty.state, from_empty.out, part.state, part.out);
  EXPECT_EQ(from_empty.out, part.out);
  EXPECT_EQ(from_empty.state.sum, part.state.sum);
}

TEST(AttentionState, NothingAttendedGivesZeros) {
  std::vector<float> out(kDimensions, std::numeric_limits<float>::quiet_NaN());
  normalize(AttentionState{}, out);
  EXPECT_EQ(out, std::vector<float>(kDimensions));
  std::vector<float> kept(kDimensions, 3.0f);
  EXPECT_EQ(merge_normalized(kMinusInfinity, out, kMinusInfinity, kept), kMinusInfinity);
  EXPECT_EQ(out, std::vector<float>(kDimensions));
  EXPECT_EQ(merge_normalized(kMinusInfinity, out, 0.5f, kept), 0.5f);
  EXPECT_EQ(out, kept);
  EXPECT_EQ(merge_normalized(0.5f, out, kMinusInfinity, std::vector<float>(kDimensions)), 0.5f);
  EXPECT_EQ(out, kept);
}

}  // namespace
}  // namespace rhapsode::kernels
