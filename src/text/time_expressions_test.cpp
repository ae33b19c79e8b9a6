// Dates in messages: relative ones count from the message's stamp, and are unknown without one.
#include "text/time_expressions.h"

#include <gtest/gtest.h>

namespace rhapsode::text {
namespace {

// A Sunday.
constexpr char kStamp[] = "2023-05-07T21:30:00+02:00";

// Case M8: "yesterday" of a message of 2023-05-07 is 2023-05-06; of a message without a stamp, unknown.
TEST(M8, YesterdayCountsFromTheMessagesStamp) {
  EXPECT_EQ(resolve_date("yesterday I sold the boat", kStamp), "2023-05-06");
  EXPECT_EQ(resolve_date("yesterday I sold the boat", ""), "");
  EXPECT_EQ(resolve_date("yesterday I sold the boat", "2023"), "");  // a year is no day
  EXPECT_EQ(resolve_date("yesterday I sold the boat", "no date"), "");
}

TEST(TimeExpressions, RelativeOnes) {
  const std::pair<const char*, const char*> cases[] = {
      {"today", "2023-05-07"},
      {"tonight we dine", "2023-05-07"},
      {"this morning", "2023-05-07"},
      {"last night", "2023-05-06"},
      {"the day before yesterday", "2023-05-05"},
      {"tomorrow", "2023-05-08"},
      {"the day after tomorrow", "2023-05-09"},
      {"three days ago", "2023-05-04"},
      {"two weeks ago", "2023-04-23"},
      {"a week ago", "2023-04-30"},
      {"a couple of weeks ago", "2023-04-23"},
      {"a month ago", "2023-04"},
      {"five months ago", "2022-12"},
      {"ten years ago", "2013"},
      {"in 3 days", "2023-05-10"},
      {"two weeks from now", "2023-05-21"},
      {"last year", "2022"},
      {"next year", "2024"},
      {"this month", "2023-05"},
      {"last month", "2023-04"},
      {"last week", "2023-04-24"},
      {"last May", "2022-05"},
      {"last April", "2023-04"},
      {"next January", "2024-01"},
      {"last Friday", "2023-05-05"},
      {"on Sunday", "2023-04-30"},
      {"next Monday", "2023-05-08"},
      {"in December", "2022-12"},
      {"in June", "2023-06"},
      {"on March 3rd", "2023-03-03"},
      {"on 24 December", "2022-12-24"},
  };
  for (const auto& [expression, date] : cases) {
    EXPECT_EQ(resolve_date(expression, kStamp), date) << expression;
    EXPECT_EQ(resolve_date(expression, ""), "") << expression;
  }
}

TEST(TimeExpressions, AbsoluteOnesNeedNoStamp) {
  const std::pair<const char*, const char*> cases[] = {
      {"since 2010", "2010"},           {"in March 2019", "2019-03"},
      {"as of 2015", "2015"},           {"on 6 May 2023", "2023-05-06"},
      {"May 6, 2023", "2023-05-06"},    {"the 6th of May 2023", "2023-05-06"},
      {"September of 1976", "1976-09"}, {"2023-05-06", "2023-05-06"},
      {"2023/5/6", "2023-05-06"},       {"at 2023-05-06T10:00:00Z exactly", "2023-05-06"},
      {"2023-05", "2023-05"},           {"29 February 2024", "2024-02-29"},
  };
  for (const auto& [expression, date] : cases) EXPECT_EQ(resolve_date(expression, ""), date) << expression;
}

TEST(TimeExpressions, WhatIsNoDateOrVagueIsUnknown) {
  for (const char* expression :
       {"", "a few days ago", "recently", "I may go", "march on", "five apples", "version 3.11",
        "in a minute", "12345", "the last straw", "99999999999999999999 days ago"}) {
    EXPECT_EQ(resolve_date(expression, kStamp), "") << expression;
  }
  // In running text, a number is a year only where a word says so.
  EXPECT_TRUE(find_dates("it cost 1999 crowns", kStamp).empty());
  EXPECT_EQ(find_dates("back in 1999 it cost more", kStamp).size(), 1u);
}

TEST(TimeExpressions, PlacesAreBytesOfTheText) {
  const std::string text = "I moved on 6 May 2021, and again last year.";
  const auto found = find_dates(text, kStamp);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(text.substr(found[0].begin, found[0].end - found[0].begin), "6 May 2021");
  EXPECT_FALSE(found[0].relative);
  EXPECT_EQ(text.substr(found[1].begin, found[1].end - found[1].begin), "last year");
  EXPECT_TRUE(found[1].relative);
}

TEST(TimeExpressions, AStampIsTheDayAsWritten) {
  EXPECT_EQ(resolve_date("today", "2023-05-07T23:30:00-08:00"), "2023-05-07");
  EXPECT_EQ(period_of("2023-02")->iso(), "2023-02");
  EXPECT_EQ(period_of("2024")->iso(), "2024");
  EXPECT_FALSE(period_of("").has_value());
}

}  // namespace
}  // namespace rhapsode::text
