#include "eval/answer_text.h"

#include <gmock/gmock.h>

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;

TEST(NormaliseAnswer, FollowsTheOfficialScriptStepByStep) {
  EXPECT_EQ(normalise_answer("The Eiffel Tower"), "eiffel tower");
  EXPECT_EQ(normalise_answer("  a   cat,  an owl & the dog! "), "cat owl dog");
  EXPECT_EQ(normalise_answer(""), "");
  EXPECT_EQ(normalise_answer("The"), "");
}

TEST(NormaliseAnswer, PunctuationIsRemovedNotReplaced) {
  EXPECT_EQ(normalise_answer("U.S.A."), "usa");
  EXPECT_EQ(normalise_answer("twenty-one"), "twentyone");
  EXPECT_EQ(normalise_answer("snake_case"), "snakecase");
  EXPECT_EQ(normalise_answer("$1,000.50"), "100050");
  // Before articles are looked for: the hyphen's removal makes one word of "the-cat".
  EXPECT_EQ(normalise_answer("the-cat"), "thecat");
  EXPECT_EQ(normalise_answer("a.m."), "am");
}

TEST(NormaliseAnswer, OnlyAsciiPunctuationGoes) {
  EXPECT_EQ(normalise_answer("1914\u20131918"), "1914\u20131918");
  EXPECT_EQ(normalise_answer("\u201cQuoted\u201d"), "\u201cquoted\u201d");
}

TEST(NormaliseAnswer, ArticlesAreWholeWordsInAnyScript) {
  EXPECT_EQ(normalise_answer("Theatre and banana"), "theatre and banana");
  EXPECT_EQ(normalise_answer("th\u00e9 a\u00e9rien"), "th\u00e9 a\u00e9rien");
  EXPECT_EQ(normalise_answer("\u00e0 la carte"), "\u00e0 la carte");
  // A dash that is no ASCII punctuation stays and is a word's border.
  EXPECT_EQ(normalise_answer("A\u2013team"), "\u2013team");
  EXPECT_EQ(normalise_answer("a2 the3"), "a2 the3");
}

TEST(NormaliseAnswer, LowersLettersOfAllScripts) {
  EXPECT_EQ(normalise_answer("\u00c9COLE \u0416\u0423\u041a"), "\u00e9cole \u0436\u0443\u043a");
}

TEST(NormaliseAnswer, AllOfUnicodesSpacesSeparate) {
  EXPECT_EQ(normalise_answer("one\u00a0two\u2003three\u3000four\nfive"), "one two three four five");
}

TEST(NormaliseAnswer, KeepsBytesThatAreNoText) {
  EXPECT_EQ(normalise_answer("A\xff the B"), "\xff b");
}

TEST(AnswerWords, AreThoseOfTheNormalisedText) {
  EXPECT_THAT(answer_words("The quick, brown fox"), ElementsAre("quick", "brown", "fox"));
}

TEST(AnswerOfReply, IsTheFirstLineWithoutItsWrapping) {
  EXPECT_EQ(answer_of_reply("\n  Paris.\nBecause it is."), "Paris");
  EXPECT_EQ(answer_of_reply("Answer: Paris"), "Paris");
  EXPECT_EQ(answer_of_reply("Answer:"), "Answer:");
  EXPECT_EQ(answer_of_reply("."), ".");
  EXPECT_EQ(answer_of_reply(" \n\t"), "");
  EXPECT_EQ(answer_of_reply("It is in Porto. Answer: Portugal.", "Answer:"), "Portugal");
  EXPECT_EQ(answer_of_reply("It is in Porto. Answer: Spain.\nAnswer:\n Portugal", "Answer:"), "Portugal");
  EXPECT_EQ(answer_of_reply("It is in Porto.", "Answer:"), "It is in Porto");
}

}  // namespace
}  // namespace rhapsode::eval
