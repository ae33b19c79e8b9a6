#include "eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "eval/random.h"

namespace rhapsode::eval {
namespace {

TEST(Random, GivesTheNumbersOfSplitmix64) {
  Random random(1234567);  // the reference implementation's first values for this seed
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, BelowIsUniform) {
  Random random(7);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts[random.below(6)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);  // four standard deviations
}

TEST(Bootstrap, IntervalIsThatOfTheNormalApproximation) {
  // 400 zeros and ones in equal parts: the mean's standard deviation is 0.5 / 20 = 0.025.
  std::vector<double> values(400);
  for (size_t i = 0; i < values.size(); i += 2) values[i] = 1;
  const Interval interval = bootstrap_mean(values, 1);
  EXPECT_DOUBLE_EQ(interval.mean, 0.5);
  EXPECT_EQ(interval.count, 400);
  EXPECT_NEAR(interval.low, 0.5 - 1.96 * 0.025, 0.005);
  EXPECT_NEAR(interval.high, 0.5 + 1.96 * 0.025, 0.005);
}

TEST(Bootstrap, EqualSeedsGiveEqualIntervals) {
  std::vector<double> values;
  for (int i = 0; i < 100; ++i) values.push_back(i * i % 97 / 97.0);
  const Interval a = bootstrap_mean(values, 5);
  const Interval b = bootstrap_mean(values, 5);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  EXPECT_NE(a.low, bootstrap_mean(values, 6).low);
}

TEST(Bootstrap, FewValuesMakeNoClaim) {
  EXPECT_EQ(bootstrap_mean({}, 1).count, 0);
  const std::vector<double> one{0.3};
  EXPECT_EQ(bootstrap_mean(one, 1).low, 0.3);
  EXPECT_EQ(bootstrap_mean(one, 1).high, 0.3);
  EXPECT_FALSE(bootstrap_mean(one, 1).excludes_zero());
}

TEST(Bootstrap, PairingResolvesWhatTheMeansCannot) {
  // Questions differ widely, but b is always 0.05 worse.
  std::vector<double> a, b;
  Random random(3);
  for (int i = 0; i < 50; ++i) {
    a.push_back(static_cast<double>(random.below(1000)) / 1000);
    b.push_back(a.back() - 0.05);
  }
  const Interval difference = bootstrap_difference(a, b, 1);
  EXPECT_NEAR(difference.mean, 0.05, 1e-12);
  EXPECT_NEAR(difference.half_width(), 0, 1e-9);
  EXPECT_TRUE(difference.excludes_zero());
  EXPECT_GT(bootstrap_mean(a, 1).half_width(), 0.05);
}

}  // namespace
}  // namespace rhapsode::eval
