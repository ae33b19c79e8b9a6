#include "model/verdict_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace rhapsode::model {
namespace {

using ::testing::HasSubstr;

class VerdictFile : public test::TemporaryFolder {};

Verdict some_verdict() {
  Verdict verdict{"ab12", "tiny", "shipped", "f16", "0.1.0", "2026-11-30T00:00:00.000Z", "built in", {}};
  MeasuredReading reading;
  reading.policy = "blend";
  reading.selector = "attention+first";
  reading.stored = "f16";
  reading.share = 0.15;
  reading.least_tokens = 256;
  reading.kl = 0.12345678;
  reading.top1 = 0.9;
  reading.f1_loss = -0.01;
  reading.f1_half_width = 0.05;
  reading.charged = 0.18;
  reading.questions = 12;
  verdict.readings = {reading, reading};
  return verdict;
}

TEST_F(VerdictFile, IsReadBackAsWritten) {
  const auto path = verdict_path(folder_, "ab12");
  ASSERT_TRUE(save_verdict(some_verdict(), path).ok());
  const auto read = load_verdict(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->model_sha256, "ab12");
  ASSERT_EQ(read->readings.size(), 2u);
  EXPECT_EQ(read->readings[1].selector, "attention+first");
  EXPECT_EQ(read->readings[1].least_tokens, 256);
  EXPECT_NEAR(read->readings[1].kl, 0.1235, 1e-12);  // four digits
  EXPECT_EQ(read->readings[1].f1_loss, -0.01);
}

TEST_F(VerdictFile, DamageIsNamedByRowAndField) {
  EXPECT_EQ(load_verdict(folder_ / "none.json").error().kind, ErrorKind::kNotFound);
  const auto path = folder_ / "verdict.json";
  ASSERT_TRUE(save_verdict(some_verdict(), path).ok());
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.rfind(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    std::ofstream(path) << changed;
    const auto read = load_verdict(path);
    EXPECT_FALSE(read.ok()) << from;
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_THAT(with("\"kl\": 0.1235", "\"kl\": \"small\""), HasSubstr("row 2: 'kl' is not a number"));
  EXPECT_THAT(with("\"share\": 0.15", "\"share\": 15"), HasSubstr("row 2: 'share' is out of range"));
  EXPECT_THAT(with("\"questions\": 12", "\"questions\": -1"), HasSubstr("'questions' is not a whole number"));
  EXPECT_THAT(with("\"policy\": \"blend\"", "\"policy\": null"), HasSubstr("'policy' is not a string"));
  EXPECT_THAT(with("\"format\": 1", "\"format\": 2"), HasSubstr("'format' is not 1"));
  std::ofstream(path) << text.substr(0, text.size() / 2);
  EXPECT_EQ(load_verdict(path).error().kind, ErrorKind::kCorrupt);
}

}  // namespace
}  // namespace rhapsode::model
