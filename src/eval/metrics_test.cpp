#include "eval/metrics.h"

#include <gmock/gmock.h>

#include <cmath>

namespace rhapsode::eval {
namespace {

using Texts = std::vector<std::string>;

TEST(StaleAnswer, CountsRepliesThatNameAValueOfAnotherTime) {
  const std::vector<std::string> golds = {"University of Arizona , Tucson"};
  const std::vector<std::string> stale = {"Perimeter Institute , Canada"};
  EXPECT_EQ(stale_answer("University of Arizona", golds, stale), 0.0);
  EXPECT_EQ(stale_answer("the University of Arizona, Tucson.", golds, stale), 0.0);
  EXPECT_EQ(stale_answer("Perimeter Institute", golds, stale), 1.0);
  EXPECT_EQ(stale_answer("Not in the documents", golds, stale), std::nullopt);
  EXPECT_EQ(stale_answer("", golds, stale), std::nullopt);
  EXPECT_EQ(stale_answer("Perimeter Institute, Canada, then the University of Arizona, Tucson", golds, stale),
            0.0);
  EXPECT_EQ(stale_answer("Arizon", golds, stale), std::nullopt);  // whole words
}

TEST(ExactMatch, TakesTheBestGoldAnswer) {
  EXPECT_EQ(exact_match("the Paris!", Texts{"London", "paris"}), 1);
  EXPECT_EQ(exact_match("Paris, France", Texts{"London", "paris"}), 0);
  EXPECT_EQ(exact_match("Paris", Texts{}), 0);
}

TEST(TokenF1, CountsTheMultisetOfWords) {
  // 2 common words; precision 2/3, recall 2/2: 2 * (2/3) / (2/3 + 1) = 0.8.
  EXPECT_DOUBLE_EQ(token_f1("in New York", Texts{"New York"}), 0.8);
  // A word said twice counts once: precision 1/2, recall 1.
  EXPECT_DOUBLE_EQ(token_f1("york york", Texts{"York"}), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(token_f1("Boston", Texts{"New York", "Boston"}), 1);
  EXPECT_DOUBLE_EQ(token_f1("Boston", Texts{"New York"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("", Texts{"New York"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("the", Texts{"an"}), 1);  // both empty once normalised
}

TEST(SubspanMatch, FindsTheAnswerInsideTheReply) {
  EXPECT_EQ(subspan_match("It was built in the year 1889.", Texts{"1889"}), 1);
  EXPECT_EQ(subspan_match("It was built in 1889.", Texts{"1890"}), 0);
  EXPECT_EQ(subspan_match("anything", Texts{"the"}), 0);  // an answer of articles alone says nothing
}

TEST(ValueRecall, CountsWholeValues) {
  EXPECT_DOUBLE_EQ(value_recall("The codes are 123456, 222222 and 9.", Texts{"123456", "222222", "333333"}),
                   2.0 / 3.0);
  EXPECT_DOUBLE_EQ(value_recall("1234567", Texts{"123456"}), 0);
  EXPECT_DOUBLE_EQ(value_recall("1", Texts{}), 0);
}

TEST(IdF1, AgreesWithCacheBlendsRule) {
  const std::vector<int32_t> a{1, 2, 3, 3};
  const std::vector<int32_t> b{3, 4};
  EXPECT_DOUBLE_EQ(id_f1(a, b), 1.0 / 3.0);  // 1 common of 4 and 2
  EXPECT_DOUBLE_EQ(id_f1({}, {}), 1);
  EXPECT_DOUBLE_EQ(id_f1(a, {}), 0);
}

TEST(CacheblendAnswer, IsTheFirstLineOrYesOrNo) {
  EXPECT_EQ(cacheblend_answer("\n\nParis\nand more"), "Paris");
  EXPECT_EQ(cacheblend_answer("Yes, they are."), "Yes");
  EXPECT_EQ(cacheblend_answer(" no, they are not"), "No");
  EXPECT_EQ(cacheblend_answer("North Dakota"), "No");  // as their script has it
  EXPECT_EQ(cacheblend_answer(""), "");
}

TEST(RecallAt, CountsEachGoldPassageOnce) {
  // Two gold passages; the second and third ranked are both the first of them.
  const std::vector<std::vector<int>> ranked{{}, {0}, {0}, {1}, {}};
  EXPECT_DOUBLE_EQ(recall_at(ranked, 2, 1), 0);
  EXPECT_DOUBLE_EQ(recall_at(ranked, 2, 2), 0.5);
  EXPECT_DOUBLE_EQ(recall_at(ranked, 2, 3), 0.5);
  EXPECT_DOUBLE_EQ(recall_at(ranked, 2, 4), 1);
  EXPECT_DOUBLE_EQ(recall_at(ranked, 2, 100), 1);
  EXPECT_DOUBLE_EQ(recall_at({}, 2, 5), 0);
  EXPECT_DOUBLE_EQ(recall_at(ranked, 0, 5), 0);
}

TEST(LogSoftmax, IsExactForLargeLogits) {
  std::vector<float> row{1000.0f, 1000.0f, -INFINITY};
  log_softmax(row);
  EXPECT_NEAR(row[0], -std::log(2.0), 1e-6);
  EXPECT_NEAR(row[1], -std::log(2.0), 1e-6);
  EXPECT_EQ(row[2], -INFINITY);
}

TEST(KlDivergence, IsThatOfTwoCoins) {
  const std::vector<float> fair{std::log(0.5f), std::log(0.5f)};
  const std::vector<float> bent{std::log(0.9f), std::log(0.1f)};
  // 0.5 ln(0.5/0.9) + 0.5 ln(0.5/0.1) = 0.5108256; the other way 0.3680642.
  EXPECT_NEAR(kl_divergence(fair, bent), 0.5108256, 1e-6);
  EXPECT_NEAR(kl_divergence(bent, fair), 0.3680642, 1e-6);
  EXPECT_EQ(kl_divergence(fair, fair), 0);
}

TEST(KlDivergence, IgnoresWhatTheReferenceRulesOut) {
  const std::vector<float> sure{0.0f, -INFINITY};
  const std::vector<float> fair{std::log(0.5f), std::log(0.5f)};
  EXPECT_NEAR(kl_divergence(sure, fair), std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isinf(kl_divergence(fair, sure)));
}

TEST(Argmax, TakesTheLowestIdOnTies) {
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1);
}

}  // namespace
}  // namespace rhapsode::eval
