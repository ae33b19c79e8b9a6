#include "engine/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rhapsode::engine {
namespace {

using ::testing::HasSubstr;

model::MeasuredReading row(const char* policy, double kl, double f1_loss, double charged, int least = 0,
                           int most = 0) {
  model::MeasuredReading reading;
  reading.policy = policy;
  reading.selector = "first";
  reading.share = charged;
  reading.stored = "f16";
  reading.kl = kl;
  reading.f1_loss = f1_loss;
  reading.charged = charged;
  reading.least_tokens = least;
  reading.most_tokens = most;
  reading.questions = 12;
  return reading;
}

const std::vector<model::MeasuredReading> kRows = {row("reuse", 0.4, 0.02, 0), row("blend", 0.2, 0.01, 0.15),
                                                   row("blend", 0.05, 0.0, 0.5)};

TEST(ChooseReading, TakesTheCheapestWithinBothLimits) {
  EXPECT_EQ(choose_reading(kRows, {500, "f16", 0.5, 0.05}).policy, ReadPolicy::kReuse);
  const PolicyChoice by_kl = choose_reading(kRows, {500, "f16", 0.3, 0.05});
  EXPECT_EQ(by_kl.policy, ReadPolicy::kBlend);
  EXPECT_EQ(by_kl.blend.share, 0.15);
  EXPECT_EQ(by_kl.blend.selector, BlendSelector::kFirst);
  EXPECT_THAT(by_kl.reason, HasSubstr("KL 0.20"));
  EXPECT_EQ(choose_reading(kRows, {500, "f16", 0.5, 0.015}).blend.share, 0.15);
  EXPECT_EQ(choose_reading(kRows, {500, "f16", 0.5, 0.0}).blend.share, 0.5);
}

TEST(ChooseReading, ReadsTextWhenNothingMeasuredIsWithinTheLimitsAndSaysWhatIsClosest) {
  const PolicyChoice none = choose_reading(kRows, {500, "f16", 0.01, 0.05});
  EXPECT_EQ(none.policy, ReadPolicy::kPrefix);
  EXPECT_THAT(none.reason, HasSubstr("KL 0.01"));
  EXPECT_THAT(none.reason, HasSubstr("blend of 50 % by first"));
}

TEST(ChooseReading, RowsHoldForTheirPassagesAndTheirTypeOnly) {
  const std::vector<model::MeasuredReading> rows = {row("reuse", 0.1, 0, 0, 256, 0),
                                                    row("reuse", 0.9, 0, 0, 0, 255)};
  EXPECT_EQ(choose_reading(rows, {256, "f16", 0.5, 0.05}).policy, ReadPolicy::kReuse);
  EXPECT_EQ(choose_reading(rows, {255, "f16", 0.5, 0.05}).policy, ReadPolicy::kPrefix);
  const PolicyChoice other = choose_reading(rows, {300, "i8", 0.5, 0.05});
  EXPECT_EQ(other.policy, ReadPolicy::kPrefix);
  EXPECT_THAT(other.reason, HasSubstr("stored as i8"));
}

}  // namespace
}  // namespace rhapsode::engine
