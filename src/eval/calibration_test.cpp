#include "eval/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace rhapsode::eval {
namespace {

using ::testing::HasSubstr;

std::vector<CalibrationText> some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text +=
        "Paragraph " + std::to_string(i) + " says what the one before it has left out of the account.\n\n";
  }
  return {{"account", text}};
}

TEST(CalibrationData, EveryQuestionHasFivePassagesAndItsFactsStandInThem) {
  const auto data = calibration_data(some_text(), {});
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data->questions.size(), 24u);
  std::set<std::string> types;
  for (const Question& question : data->questions) {
    types.insert(question.group + " " + question.type);
    EXPECT_EQ(question.own.size(), 5u) << question.id;
    for (const Evidence& evidence : question.gold) {
      const Span& place = evidence.places.front();
      EXPECT_NE(std::find(question.own.begin(), question.own.end(), place), question.own.end());
    }
    if (question.type == "long") {
      EXPECT_TRUE(question.answers.empty());
      EXPECT_GT(question.answer_tokens, 0);
      continue;
    }
    ASSERT_EQ(question.answers.size(), 1u);
    const int last = question.gold.back().places.front().document;
    EXPECT_THAT(data->documents[last].text, HasSubstr(question.answers[0]));
    EXPECT_EQ(question.gold.size(), question.type == "joined" ? 2u : 1u);
  }
  EXPECT_EQ(types.size(), 6u);
}

TEST(CalibrationData, IsTheSameForASeedAndDiffersForAnother) {
  const auto first = calibration_data(some_text(), {}), again = calibration_data(some_text(), {});
  const auto other = calibration_data(some_text(), {.thorough = false, .seed = 1});
  EXPECT_EQ(first->questions[0].text, again->questions[0].text);
  EXPECT_EQ(first->documents[7].text, again->documents[7].text);
  EXPECT_NE(first->questions[0].text, other->questions[0].text);
}

TEST(CalibrationData, TooLittleTextIsRefusedAndTheBuiltInPagesAreEnough) {
  const auto refused = calibration_data({{"note", "One line.\n\nAnd another.\n\n"}}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(calibration_data(built_in_calibration_texts(), {.thorough = true}).ok());
}

TEST(CalibrationTask, NamesItsContexts) {
  EXPECT_EQ(calibration_task({}).contexts.size(), 4u);
  const Task thorough = calibration_task({.thorough = true});
  EXPECT_EQ(thorough.contexts.size(), 2u + 6 * 4);
  EXPECT_EQ(thorough.contexts.front(), Context::kFull);
}

Record measured(const std::string& group, const std::string& id, const char* context,
                std::map<std::string, double> scores) {
  Record record;
  record.group = group;
  record.id = id;
  record.context = context;
  record.scores = std::move(scores);
  return record;
}

TEST(MeasuredReadings, AreMeansWithPairedLossesByGroupTheCheapestFirst) {
  std::vector<Record> records;
  for (const std::string group : {"filled", "short"}) {
    for (int i = 0; i < 4; ++i) {
      const std::string id = std::to_string(i);
      records.push_back(measured(group, id, "full", {{"f1", 1.0}, {"ttft_ms", 100}, {"charged", 1}}));
      records.push_back(
          measured(group, id, "own:blend=first@30",
                   {{"f1", 1.0}, {"kl", 0.1}, {"top1", 0.9}, {"ttft_ms", 50}, {"charged", 0.3}}));
      records.push_back(measured(
          group, id, "reuse",
          {{"f1", i == 0 ? 0.0 : 1.0}, {"kl", 0.4}, {"top1", 0.8}, {"ttft_ms", 10}, {"charged", 0}}));
    }
  }
  const auto rows = measured_readings(records, 0, "f16");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].policy, "reuse");
  EXPECT_EQ(rows[0].least_tokens, kFilledTokens);
  EXPECT_EQ(rows[1].most_tokens, kFilledTokens - 1);
  EXPECT_NEAR(rows[0].f1_loss, 0.25, 1e-12);
  EXPECT_GT(rows[0].f1_half_width, 0);
  EXPECT_NEAR(rows[0].ttft_ratio, 10, 1e-12);
  EXPECT_EQ(rows[2].policy, "blend");
  EXPECT_EQ(rows[2].selector, "first");
  EXPECT_NEAR(rows[2].share, 0.3, 1e-12);
  EXPECT_EQ(rows[2].questions, 4);
  EXPECT_EQ(rows[2].stored, "f16");
}

TEST(ContextNames, AreReadBackAndWrongOnesRefused) {
  for (const char* name : {"closed",
                           "gold",
                           "full",
                           "reuse",
                           "routed",
                           "bm25",
                           "latent",
                           "own:prefix",
                           "routed:full",
                           "routed:reorder",
                           "own:blend=attention+first@15",
                           "routed:blend=deviation@2.5",
                           "bm25:reuse",
                           "routed:blend=attention@15x2",
                           "chain",
                           "judged+links",
                           "chain+links:reuse",
                           "bm25+links",
                           "own:blend=attention+last@10x8",
                           "routed+again",
                           "routed:reuse+again",
                           "evidence+judged:reuse+again",
                           "routed+links:blend=first@5+again"}) {
    const auto context = context_named(name);
    ASSERT_TRUE(context) << name;
    EXPECT_EQ(to_string(*context), name);
  }
  EXPECT_EQ(to_string(*context_named("blend")), "own:blend=attention+first@15");
  EXPECT_EQ(to_string(*context_named("linked")), "routed+links");
  EXPECT_EQ(to_string(*context_named("routed:blend=first")), "routed:blend=first@15");
  for (const char* name : {"",
                           "own",
                           "nothing",
                           "routed:",
                           "closed:reuse",
                           "gold:full",
                           "routed:auto",
                           "reuse=first",
                           "blend=",
                           "blend=best",
                           "blend=first@",
                           "blend=first@101",
                           "blend=first@x",
                           "routed:blend=first@-1",
                           "gold+links",
                           "closed+links",
                           "+links",
                           "links",
                           "reuse+links",
                           "own+links:reuse",
                           "+again",
                           "reuse+again",
                           "own:reuse+again",
                           "bm25+again",
                           "routed+again+again",
                           "gold+again"}) {
    EXPECT_FALSE(context_named(name)) << name;
  }
}

TEST(ContextNames, RunInAnOrderThatReadsTextFirst) {
  const auto contexts = parse_contexts("routed:blend=first@5,reuse,routed,routed:full,full,closed");
  ASSERT_TRUE(contexts.ok());
  std::vector<std::string> names;
  for (const Context& context : *contexts) names.push_back(to_string(context));
  EXPECT_THAT(names, ::testing::ElementsAre("closed", "full", "reuse", "routed", "routed:full",
                                            "routed:blend=first@5"));
}

}  // namespace
}  // namespace rhapsode::eval
