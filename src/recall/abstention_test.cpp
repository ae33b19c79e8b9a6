// Case I14: a question that the memory does not hold is told from one that it does.
#include "recall/abstention.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "text/search_terms.h"

namespace rhapsode::recall {
namespace {

std::string facts() {
  std::string text;
  for (int i = 1; i <= 100; ++i) {
    char line[64];
    std::snprintf(line, sizeof line, "Box %04d holds code %04x.\n", i, i * 7919 % 65536);
    text += line;
  }
  return text;
}

bool unfit(const std::string& question, const std::string& text) {
  const std::vector<std::string> terms = text::question_terms(question);
  const std::vector<std::string> texts = {text};
  return is_unfit(coverage_of(terms, texts));
}

TEST(Abstention, AQuestionAboutAnotherSubjectOrAnotherNumberIsUnfit) {
  EXPECT_TRUE(unfit("what is music?", facts()));
  EXPECT_TRUE(unfit("Which code does box 4711 hold?", facts()));
  EXPECT_TRUE(unfit("Who won the tennis match?", facts()));
}

TEST(Abstention, AQuestionThatTheTextAnswersIsFit) {
  EXPECT_FALSE(unfit("Which code does box 0042 hold?", facts()));
  EXPECT_FALSE(unfit("What is in box 0100?", facts()));
  EXPECT_FALSE(unfit("What does the box hold?", facts()));
}

TEST(Abstention, AQuestionWithoutTermsIsLeftToTheModel) {
  EXPECT_FALSE(unfit("???", facts()));
}

TEST(Abstention, RefusalsAreSeenInTheWordingOfTheInstruction) {
  EXPECT_TRUE(is_refusal("Not in the documents."));
  EXPECT_TRUE(is_refusal("The answer is not in the documents"));
  EXPECT_FALSE(is_refusal("It stands in the documents on page 3."));
  EXPECT_FALSE(is_refusal(""));
}

}  // namespace
}  // namespace rhapsode::recall
