// When statements hold.
#include "text/time_spans.h"

#include <gtest/gtest.h>

namespace rhapsode::text {
namespace {

std::string shown(const TimeSpan& span) {
  const auto day = [](const std::optional<Day>& d) {
    return d ? DatePeriod{*d, *d}.iso() : std::string("?");
  };
  return day(span.first) + ".." + day(span.last);
}

TEST(TimeSpans, IntervalsThatSentencesState) {
  const std::pair<const char*, const char*> cases[] = {
      {"She worked there from 2007 to 2011.", "2007-01-01..2011-12-31"},
      {"between March 2004 and May 2005", "2004-03-01..2005-05-31"},
      {"He was president (2001–2004).", "2001-01-01..2004-12-31"},
      {"lecturer, 1998 - 2003", "1998-01-01..2003-12-31"},
      {"since May 2010", "2010-05-01..?"},
      {"2014 to present", "2014-01-01..?"},
      {"until 2003", "?..2003-12-31"},
      {"in 1998", "1998-01-01..1998-12-31"},
      {"on 6 May 2023", "2023-05-06..2023-05-06"},
  };
  for (const auto& [text, span] : cases) {
    const auto spans = time_spans(text);
    ASSERT_EQ(spans.size(), 1u) << text;
    EXPECT_EQ(shown(spans.front()), span) << text;
  }
}

TEST(TimeSpans, DatesThatAreNotJoinedStandAlone) {
  const auto spans = time_spans("He came in 2001 and left for Rome in 2004.");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_TRUE(spans[0].point);
  EXPECT_EQ(shown(spans[1]), "2004-01-01..2004-12-31");
  // An interval does not run backwards.
  EXPECT_EQ(time_spans("2011 to 2007").size(), 2u);
}

TEST(TimeSpans, FitOfATextToAPeriod) {
  const DatePeriod at = *period_of("2009");
  EXPECT_EQ(time_fit("She worked there from 2007 to 2011.", at), 1);
  EXPECT_EQ(time_fit("Director since 2005.", at), 0.75);
  EXPECT_EQ(time_fit("No dates here.", at), 0);
  EXPECT_EQ(time_fit("From 1990 to 1995 she taught.", at), -1);
  EXPECT_EQ(time_fit("She joined in 2012.", at), -1);  // begins later
  const double lately = time_fit("She joined in 2008.", at);
  EXPECT_GT(lately, 0);
  EXPECT_LT(lately, 0.26);
  EXPECT_LT(time_fit("She joined in 1980.", at), 0);
  // The best of its statements counts.
  EXPECT_EQ(time_fit("From 1990 to 1995 at A, then from 2007 to 2010 at B.", at), 1);
}

}  // namespace
}  // namespace rhapsode::text
