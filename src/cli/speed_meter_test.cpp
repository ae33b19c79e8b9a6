// Measuring in turns: order of runs, medians, and what is timed.
#include "cli/speed_meter.h"

#include <gtest/gtest.h>

namespace rhapsode::cli {
namespace {

// Takes a chosen time a token on a clock of its own, and notes what it was asked.
class TimedSource final : public engine::LogitSource {
 public:
  TimedSource(double& now, std::string name, std::vector<double> seconds_a_token,
              std::vector<std::string>& log)
      : now_(now), name_(std::move(name)), seconds_(std::move(seconds_a_token)), log_(log) {}

  void reset() override {
    tokens_ = 0;
    ++resets_;
  }
  Result<std::span<const float>> evaluate(std::span<const int32_t> tokens) override {
    const double pace =
        seconds_[std::min(static_cast<size_t>(resets_ > 0 ? resets_ - 1 : 0), seconds_.size() - 1)];
    now_ += pace * static_cast<double>(tokens.size());
    tokens_ += static_cast<int>(tokens.size());
    log_.push_back(fmt::format("{}{}", name_, tokens.size()));
    for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 1000);
    return std::span<const float>();
  }
  int tokens() const { return tokens_; }

 private:
  double& now_;
  std::string name_;
  std::vector<double> seconds_;
  std::vector<std::string>& log_;
  int tokens_ = 0;
  int resets_ = 0;
};

struct SpeedMeterTest : testing::Test {
  double now = 0;
  std::vector<std::string> log;
  SpeedHooks hooks{[this] { return now; }, [](const std::string&) {}};
};

TEST_F(SpeedMeterTest, PrefillAlternatesAndTakesTheMedian) {
  // The warm-up is the first reset; then runs of 1, 9 and 2 seconds a token: the median is 2.
  TimedSource ours(now, "o", {1, 1, 9, 2}, log);
  TimedSource peer(now, "p", {4}, log);
  SpeedMeter meter(ours, &peer, 1000, hooks);
  const auto row = meter.prefill(600, 3);
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(log, (std::vector<std::string>{"o512", "p512", "o600", "p600", "o600", "p600", "o600", "p600"}));
  EXPECT_DOUBLE_EQ(row->tokens_per_s, 0.5);
  EXPECT_DOUBLE_EQ(row->peer_tokens_per_s.value(), 0.25);
  EXPECT_DOUBLE_EQ(row->ratio().value(), 2.0);
}

TEST_F(SpeedMeterTest, DecodeTimesOnlyTheSteps) {
  TimedSource ours(now, "o", {0.5}, log);
  SpeedMeter meter(ours, nullptr, 1000, hooks);
  const auto row = meter.decode(2000, 4, 2);
  ASSERT_TRUE(row.ok());
  EXPECT_DOUBLE_EQ(row->tokens_per_s, 2.0);
  EXPECT_FALSE(row->ratio().has_value());
  EXPECT_EQ(row->tokens, 2000);
  EXPECT_EQ(log[0], "o2000");  // filled once
  EXPECT_EQ(std::count(log.begin(), log.end(), "o2000"), 1);
  EXPECT_LE(ours.tokens(), 2000 + SpeedMeter::decode_growth(4, 2));
}

TEST_F(SpeedMeterTest, DecodeGoesOnBehindAPrefillOfTheSameLength) {
  TimedSource ours(now, "o", {1}, log);
  SpeedMeter meter(ours, nullptr, 1000, hooks);
  ASSERT_TRUE(meter.prefill(2000, 1).ok());
  log.clear();
  ASSERT_TRUE(meter.decode(2000, 4, 1).ok());
  EXPECT_EQ(std::count(log.begin(), log.end(), "o2000"), 0);
  EXPECT_GE(ours.tokens(), 2000 + 4);
  log.clear();
  ASSERT_TRUE(meter.decode(2000, 4, 1).ok());  // by now the context has grown
  EXPECT_EQ(std::count(log.begin(), log.end(), "o2000"), 1);
}

TEST_F(SpeedMeterTest, AnEmptyContextIsStartedAnewForEachRun) {
  TimedSource ours(now, "o", {1}, log);
  SpeedMeter meter(ours, nullptr, 1000, hooks);
  ASSERT_TRUE(meter.decode(0, 8, 5).ok());
  EXPECT_EQ(ours.tokens(), 1 + 8);
}

}  // namespace
}  // namespace rhapsode::cli
