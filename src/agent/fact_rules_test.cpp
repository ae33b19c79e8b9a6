// What messages state, by rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rhapsode/facts.h"

namespace rhapsode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FactInfo known(const std::string& subject, const std::string& attribute, const std::string& value) {
  FactInfo fact;
  fact.subject = subject;
  fact.attribute = attribute;
  fact.value = value;
  fact.version = 1;
  fact.current = true;
  return fact;
}

std::vector<std::string> found(const std::string& text, const std::vector<FactInfo>& known = {},
                               const std::string& stamp = "2026-03-08") {
  std::vector<std::string> lines;
  for (const FactStatement& one : find_facts({text, "Ana", stamp, "m1", "ana"}, known)) {
    lines.push_back(std::string(to_string(one.action)) + " " + one.subject + " | " + one.attribute + " | " +
                    one.value + (one.event_time.empty() ? "" : " @" + one.event_time));
  }
  return lines;
}

TEST(FactRules, Statements) {
  const std::pair<const char*, const char*> cases[] = {
      {"My favourite tea is oolong.", "stated Ana | favourite tea | oolong"},
      {"Ben's phone number is 555-0134", "stated Ben | phone number | 555-0134"},
      {"By the way, my dog is called Rex!", "stated Ana | dog | Rex"},
      {"I live in Rome.", "stated Ana | home | Rome"},
      {"I now live in Rome", "stated Ana | home | Rome"},
      {"I just moved to Lisbon.", "stated Ana | home | Lisbon"},
      {"I moved to Lisbon last year.", "stated Ana | home | Lisbon @2025"},
      {"Since May 2024 I work for Acme Corp.", "stated Ana | employer | Acme Corp @2024-05"},
      {"Ben works as a carpenter.", "stated Ben | job | a carpenter"},
      {"I am allergic to peanuts.", "stated Ana | allergy: peanuts | peanuts"},
      {"My address has changed to 5 Elm Street.", "stated Ana | address | 5 Elm Street"},
      {"My new car is a red Saab now.", "stated Ana | car | a red Saab"},
      {"Call me Annie", "stated Ana | name | Annie"},
      {"Ben is married to Clara.", "stated Ben | spouse | Clara"},
  };
  for (const auto& [text, line] : cases) EXPECT_THAT(found(text), ElementsAre(line)) << text;
}

TEST(FactRules, WhatStatesNothing) {
  for (const char* text :
       {"What is my favourite tea?", "If I lived in Rome, I would be happy.", "I want to live in Rome",
        "My favourite tea is not oolong.", "Maybe my car is broken", "She lives in Rome.", "Thanks!", "",
        "My boss said that my report is late.", "He's what my mother is.", "I'm planning to move to Rome.",
        "I heard that Ben lives in Oslo."}) {
    EXPECT_THAT(found(text), IsEmpty()) << text;
  }
  EXPECT_THAT(found(std::string(5000, 'x') + " my tea is mint."), IsEmpty());
}

TEST(FactRules, CorrectionsNeedSomethingToCorrect) {
  const std::vector<FactInfo> facts = {known("Ana", "home", "Oslo"), known("Ana", "favourite tea", "oolong")};
  EXPECT_THAT(found("Actually, I live in Bergen, not Oslo.", facts),
              ElementsAre("corrected Ana | home | Bergen"));
  EXPECT_THAT(found("Sorry, I meant my favourite tea is mint.", facts),
              ElementsAre("corrected Ana | favourite tea | mint"));
  EXPECT_THAT(found("Actually it's Bergen, not Oslo.", facts), ElementsAre("corrected Ana | home | Bergen"));
  EXPECT_THAT(found("Actually, I live in Bergen."), ElementsAre("stated Ana | home | Bergen"));
  EXPECT_THAT(found("It's Bergen, not Rome.", facts), IsEmpty());
}

TEST(FactRules, Retractions) {
  const std::vector<FactInfo> facts = {known("Ana", "home", "Oslo"), known("Ana", "favourite tea", "oolong"),
                                       known("Ana", "car", "a red Saab")};
  EXPECT_THAT(found("Please forget my favourite tea.", facts),
              ElementsAre("retracted Ana | favourite tea | "));
  EXPECT_THAT(found("Forget that I live in Oslo.", facts), ElementsAre("retracted Ana | home | "));
  EXPECT_THAT(found("I no longer live in Oslo.", facts), ElementsAre("retracted Ana | home | "));
  EXPECT_THAT(found("I don't live in Oslo anymore", facts), ElementsAre("retracted Ana | home | "));
  EXPECT_THAT(found("My car is no longer a red Saab.", facts), ElementsAre("retracted Ana | car | "));
  EXPECT_THAT(found("It is not true that I live in Oslo.", facts), ElementsAre("retracted Ana | home | "));
  EXPECT_THAT(found("Forget that.", facts), ElementsAre("retracted Ana | car | "));
  EXPECT_THAT(found("I live in Rome. Forget that.", {}), IsEmpty());
  // Not what is recorded: nothing is taken back.
  EXPECT_THAT(found("I no longer live in Paris.", facts), IsEmpty());
}

// Case M1, the words of it: disliking the old value of an attribute and preferring another one is a change of
// that attribute.
TEST(M1, ANewPreferenceIsAChangeOfTheAttributeItIsAbout) {
  const std::vector<FactInfo> facts = {known("Ana", "favourite tea", "oolong")};
  EXPECT_THAT(found("Ana now dislikes oolong, prefers mint", facts),
              ElementsAre("stated Ana | favourite tea | mint"));
}

// Case M8: dates in a message count from its stamp; without one they are unknown, not today's.
TEST(M8, AFactsDateCountsFromTheMessagesStamp) {
  const auto fact = [](const std::string& stamp) {
    return find_facts({"Yesterday I moved to Lisbon.", "Ana", stamp, "m7", "ana"}, {});
  };
  const auto stamped = fact("2023-05-07T10:00:00Z");
  ASSERT_EQ(stamped.size(), 1u);
  EXPECT_EQ(stamped[0].event_time, "2023-05-06");
  EXPECT_EQ(stamped[0].told, "2023-05-07T10:00:00Z");
  EXPECT_EQ(stamped[0].message, "m7");
  EXPECT_EQ(stamped[0].quote, "Yesterday I moved to Lisbon");
  const auto unstamped = fact("");
  for (const FactStatement& one : unstamped) EXPECT_EQ(one.event_time, "");
}

}  // namespace
}  // namespace rhapsode
