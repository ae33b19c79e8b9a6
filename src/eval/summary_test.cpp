#include "eval/summary.h"

#include <gmock/gmock.h>

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;

Record record(const char* group, const char* id, const char* context, double em) {
  Record out;
  out.group = group;
  out.id = id;
  out.context = context;
  out.scores = {{"em", em}};
  return out;
}

std::vector<Record> some() {
  return {record("a", "1", "full", 1),  record("a", "1", "reuse", 0), record("a", "2", "full", 1),
          record("a", "2", "reuse", 1), record("b", "1", "full", 0),  record("b", "3", "reuse", 1)};
}

TEST(Summary, GroupsContextsAndAll) {
  const Summary summary = summarise(some(), "full", 1);
  ASSERT_EQ(summary.groups.size(), 3u);
  EXPECT_EQ(summary.groups[2].group, "all");
  const ContextSummary& full = summary.groups[2].contexts[0];
  EXPECT_EQ(full.context, "full");
  EXPECT_EQ(full.questions, 3);
  EXPECT_DOUBLE_EQ(full.metrics.at("em").mean, 2.0 / 3.0);
  EXPECT_TRUE(full.differences.empty());
}

TEST(Summary, DifferencesArePairedOnSharedQuestions) {
  const Summary summary = summarise(some(), "full", 1);
  // a: question 1 loses 1, question 2 nothing; b has no question that both answered.
  EXPECT_DOUBLE_EQ(summary.groups[0].contexts[1].differences.at("em").mean, -0.5);
  EXPECT_EQ(summary.groups[0].contexts[1].differences.at("em").count, 2);
  EXPECT_TRUE(summary.groups[1].contexts[1].differences.empty());
  EXPECT_DOUBLE_EQ(summary.groups[2].contexts[1].differences.at("em").mean, -0.5);
}

TEST(Summary, WithoutABaselineThereAreNoDifferences) {
  for (const GroupSummary& group : summarise(some(), "", 1).groups) {
    for (const ContextSummary& context : group.contexts) EXPECT_TRUE(context.differences.empty());
  }
}

TEST(Compare, TakesTheSecondFileMinusTheFirst) {
  std::vector<Record> better = some();
  better[1].scores["em"] = 1;
  better.push_back(record("a", "9", "full", 0));  // only here: not compared
  const Summary summary = compare_results(some(), better, 1);
  const ContextSummary& reuse = summary.groups[0].contexts[1];
  EXPECT_DOUBLE_EQ(reuse.differences.at("em").mean, 0.5);
  EXPECT_EQ(reuse.questions, 2);
  EXPECT_DOUBLE_EQ(summary.groups[0].contexts[0].differences.at("em").mean, 0);
}

TEST(OrderedMetrics, ReadersFirstRecallByDepthUnknownLast) {
  GroupSummary group;
  group.contexts.emplace_back();
  for (const char* name :
       {"recall@10", "zeta", "nll", "em", "ttft_ms", "recall@2", "all_gold@5", "recall@x"}) {
    group.contexts[0].metrics[name] = {};
  }
  EXPECT_THAT(ordered_metrics(group),
              ElementsAre("em", "nll", "recall@x", "recall@2", "recall@10", "all_gold@5", "ttft_ms", "zeta"));
}

}  // namespace
}  // namespace rhapsode::eval
