#include "eval/results_file.h"

#include <gmock/gmock.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class ResultsFileTest : public test::TemporaryFolder {
 protected:
  void write(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  std::filesystem::path path_ = folder_ / "results.jsonl";
};

constexpr const char* kSettings = "{\"settings\":{\"task\":\"t\"}}\n";
constexpr const char* kRecord = "{\"group\":\"g\",\"id\":\"1\",\"context\":\"full\",\"scores\":{\"em\":1}}\n";

TEST_F(ResultsFileTest, DamageInTheMiddleIsNoTornLine) {
  write(std::string(kSettings) + "{\"group\n" + kRecord);
  EXPECT_THAT(read_results(path_).error().message, HasSubstr("line 2"));
  write(std::string(kSettings) + "{\"group\":3}\n" + kRecord);
  EXPECT_THAT(read_results(path_).error().message, HasSubstr("lacks a group"));
  write("{}\n");
  EXPECT_THAT(read_results(path_).error().message, HasSubstr("settings"));
  write("{\"settings\"");
  EXPECT_EQ(read_results(path_).error().kind, ErrorKind::kCorrupt);
  write(std::string(kSettings) + kRecord + "[1]\n");
  EXPECT_FALSE(read_results(path_).ok());
}

TEST_F(ResultsFileTest, ATornLastLineIsDropped) {
  write(std::string(kSettings) + kRecord + "{\"group\":\"g\"");
  const auto lines = read_results(path_);
  ASSERT_TRUE(lines.ok());
  EXPECT_THAT(lines->records, SizeIs(1));
  EXPECT_EQ(lines->whole_bytes, std::string(kSettings).size() + std::string(kRecord).size());
}

TEST_F(ResultsFileTest, TheLastRecordOfAKeyCounts) {
  const std::string failed = "{\"group\":\"g\",\"id\":\"1\",\"context\":\"full\",\"error\":\"no\"}\n";
  write(kSettings + failed + kRecord);
  EXPECT_THAT(read_results(path_)->records, SizeIs(1));
  EXPECT_EQ(read_results(path_)->records[0].scores.at("em"), 1);
  const auto file = ResultsFile::open(path_, Json{{"task", "t"}}, true);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->done_before(), 1);
}

TEST_F(ResultsFileTest, ScoresThatAreNoNumbersAreLeftOut) {
  write(std::string(kSettings) +
        "{\"group\":\"g\",\"id\":\"1\",\"context\":\"full\",\"scores\":{\"kl\":null}}\n");
  EXPECT_TRUE(read_results(path_)->records[0].scores.empty());
}

TEST(DifferingSettings, NamesWhatChangesNumbers) {
  const Json a{{"task", "t"}, {"seed", 1}, {"machine", "x"}, {"only_a", 1}};
  const Json b{{"task", "t"}, {"seed", 2}, {"machine", "y"}, {"only_b", 1}};
  EXPECT_THAT(differing_settings(a, b), ElementsAre("seed", "only_a", "only_b"));
  EXPECT_TRUE(differing_settings(a, a).empty());
}

}  // namespace
}  // namespace rhapsode::eval
