// Plans, progress and reports of `add` as people see them.
#include <gtest/gtest.h>

#include "cli/add_progress.h"
#include "cli/add_report.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

TerminalTraits terminal_of(int columns) {
  return {.out_is_terminal = true, .err_is_terminal = true, .can_erase = true, .columns = columns};
}

AddProgress halfway() {
  AddProgress progress;
  progress.source = "docs/a long name of a folder/数字の案内.md";
  progress.sources_done = 12;
  progress.sources_total = 40;
  progress.tokens_done = 500;
  progress.tokens_total = 1000;
  progress.tokens_per_s = 1240;
  progress.seconds_left = 125;
  return progress;
}

TEST(AddProgressLine, TellsAllWhereThereIsRoom) {
  Terminal terminal(terminal_of(140));
  EXPECT_EQ(
      AddProgressLine(terminal).line(halfway()),
      "docs/a long name of a folder/数字の案内.md  ████████░░░░░░░░ 50 %  2:05 min left  1,240 tokens/s  "
      "12 of 40 sources");
}

TEST(AddProgressLine, FitsAnyWidth) {
  for (int columns = 40; columns <= 200; ++columns) {
    Terminal terminal(terminal_of(columns));
    const std::string line = AddProgressLine(terminal).line(halfway());
    EXPECT_LT(display_width(line), columns) << line;
    EXPECT_NE(line.find("50 %"), std::string::npos) << line;
  }
  Terminal narrow(terminal_of(40));
  EXPECT_EQ(AddProgressLine(narrow).line(halfway()), "…der/数字の案内.md  50 %  2:05 min left");
}

TEST(AddProgressLine, LittleIsKnownAtFirst) {
  Terminal terminal(terminal_of(80));
  EXPECT_EQ(AddProgressLine(terminal).line({}), "");
  AddProgress progress;
  progress.source = "a\nb\x1b[31m";
  EXPECT_EQ(AddProgressLine(terminal).line(progress), "a b␛[31m  ");
}

TEST(PlanText, CountsAndEstimates) {
  EXPECT_EQ(
      plan_text({12, 1, 3, 45120, 554434560, 200, false}),
      "12 new sources, 1 changed, 3 unchanged: 45,120 tokens to encode, 554 MB to store, about 3:20 min");
  EXPECT_EQ(plan_text({1, 0, 0, 1, 0, 1, true}),
            "1 new source: 1 token to encode, keys and values to be made when first read, about 1 s");
}

AddReport busy_report() {
  AddReport report;
  report.added = 2;
  report.updated = 1;
  report.unchanged = 3;
  report.removed = 1;
  for (const char* name : {"a", "b", "c", "d"}) report.skipped.push_back({name, "binary"});
  report.skipped.push_back({"e\x1b", "no text"});
  report.failed.push_back({"f.pdf", "damaged: no pages"});
  for (int i = 0; i < 7; ++i) report.warnings.push_back({"w", "a page has no text"});
  report.passages = 9;
  report.encoded_tokens = 4000;
  report.kv_bytes = 1500;
  report.seconds = 2;
  return report;
}

TEST(ReportText, GroupsSkipsByReason) {
  const Terminal terminal(terminal_of(80));
  EXPECT_EQ(report_text(busy_report(), false, terminal),
            "added 2 sources, updated 1, removed 1, 3 unchanged\n"
            "9 passages, 4,000 tokens encoded at 2,000/s, 1.5 kB of keys and values, in 2 s\n"
            "skipped 5 sources\n"
            "  4 binary: a, b, c, and 1 more\n"
            "  1 no text: e␛\n"
            "7 remarks\n"
            "  w: a page has no text\n"
            "  w: a page has no text\n"
            "  w: a page has no text\n"
            "  w: a page has no text\n"
            "  w: a page has no text\n"
            "  and 2 more (--verbose)\n"
            "failed 1 source\n"
            "  f.pdf: damaged: no pages\n");
}

TEST(ReportText, VerboseNamesAll) {
  const std::string text = report_text(busy_report(), true, Terminal(terminal_of(80)));
  for (const char* line : {"  a: binary\n", "  d: binary\n", "  e␛: no text\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  EXPECT_EQ(text.find("more"), std::string::npos);
}

TEST(ReportText, NothingToDo) {
  AddReport report;
  report.unchanged = 5;
  EXPECT_EQ(report_text(report, false, Terminal(terminal_of(80))), "added 0 sources, 5 unchanged\n");
}

}  // namespace
}  // namespace rhapsode::cli
