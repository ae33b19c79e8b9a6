// When an answer pauses to look for passages again.
#include "engine/answer_watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rhapsode {
namespace {

const std::vector<float> kSure{9, 0, 0, 0};
const std::vector<float> kUnsure{1, 1, 1, 1};  // ln 4 = 1.386 nats

// Before how many tokens of `text`, a word each, the answer pauses; every pause is a routing.
std::vector<int> pauses(AnswerWatch& watch, const std::vector<std::string>& pieces,
                        const std::vector<float>& row = kSure) {
  std::vector<int> at;
  std::string text;
  for (int tokens = 0; tokens <= static_cast<int>(pieces.size()); ++tokens) {
    if (watch.pauses_before(tokens, text, row)) {
      at.push_back(tokens);
      watch.routed();
    }
    if (tokens < static_cast<int>(pieces.size())) text += pieces[static_cast<size_t>(tokens)];
  }
  return at;
}

TEST(AnswerWatch, WithoutAConditionNothingPauses) {
  AnswerWatch watch({}, false);
  EXPECT_TRUE(pauses(watch, {"One", " is", " one", ".", " Two", "."}, kUnsure).empty());
  EXPECT_TRUE(watch.entropies().empty());
}

TEST(AnswerWatch, PausesAfterEverySoManyTokensAndSoManyTimes) {
  RerouteOptions options;
  options.every_tokens = 2;
  AnswerWatch watch(options, false);
  EXPECT_EQ(pauses(watch, {"a", "b", "c", "d", "e", "f", "g", "h", "i"}), (std::vector<int>{2, 4, 6}));
  EXPECT_EQ(watch.cause(), RouteCause::kTokens);
  EXPECT_EQ(watch.routings(), 3);
}

TEST(AnswerWatch, PausesWhereSentencesEnd) {
  RerouteOptions options;
  options.sentences = true;
  options.most = 10;
  AnswerWatch watch(options, false);
  // Not at abbreviations, nor twice for the white space behind one.
  EXPECT_EQ(
      pauses(watch, {"Dr", ".", " Ana", " went", " home", ".", "\n", "\n", " She", " slept", "!", " End"}),
      (std::vector<int>{6, 11}));
  AnswerWatch unspaced(options, false);
  EXPECT_EQ(pauses(unspaced, {"这", "是", "一", "。", "二"}), (std::vector<int>{4}));
}

TEST(AnswerWatch, PausesWhereTheModelIsUnsureButNotBeforeTheFirstToken) {
  RerouteOptions options;
  options.entropy = 1.0;
  options.most = 2;
  AnswerWatch watch(options, false);
  EXPECT_TRUE(pauses(watch, {"a", "b"}, kSure).empty());
  AnswerWatch unsure(options, false);
  EXPECT_EQ(pauses(unsure, {"a", "b", "c"}, kUnsure), (std::vector<int>{1, 2}));
  EXPECT_EQ(unsure.cause(), RouteCause::kEntropy);
  EXPECT_NEAR(unsure.entropy(), std::log(4.0), 1e-6);
  ASSERT_EQ(unsure.entropies().size(), 4u);
}

TEST(AnswerWatch, ARowThatComesAgainIsNotAskedAboutAgain) {
  RerouteOptions options;
  options.every_tokens = 1;
  AnswerWatch watch(options, true);
  EXPECT_TRUE(watch.pauses_before(1, "a", kSure));
  watch.routed();
  EXPECT_FALSE(watch.pauses_before(1, "a", kUnsure));
  // Its entropy is that of the row that the token is drawn from.
  ASSERT_EQ(watch.entropies().size(), 2u);
  EXPECT_NEAR(watch.entropies().back(), std::log(4.0), 1e-6);
}

TEST(AnswerWatch, AttentionFallsAgainstItsHighestSinceTheLastSearch) {
  RerouteOptions options;
  options.attention = 0.5;
  AnswerWatch watch(options, false);
  for (int tokens = 1; tokens < AnswerWatch::kAttentionTokens; ++tokens) {
    EXPECT_FALSE(watch.pauses_before(tokens, "a", kSure));
  }
  EXPECT_TRUE(watch.pauses_before(AnswerWatch::kAttentionTokens, "a", kSure));
  EXPECT_EQ(watch.cause(), RouteCause::kAttention);
  EXPECT_FALSE(watch.attention_fell(watch.attention_part(0.2)));
  EXPECT_FALSE(watch.pauses_before(AnswerWatch::kAttentionTokens + 1, "a", kSure));
  EXPECT_FALSE(watch.attention_fell(watch.attention_part(0.11)));
  EXPECT_DOUBLE_EQ(watch.attention_part(0.05), 0.25);
  EXPECT_TRUE(watch.attention_fell(0.25));
  watch.routed();
  EXPECT_DOUBLE_EQ(watch.attention_part(0.05), 1.0);
}

}  // namespace
}  // namespace rhapsode
