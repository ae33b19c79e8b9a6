#include "base/iso_time.h"

#include <gtest/gtest.h>

namespace rhapsode {
namespace {

TEST(IsoTimeTest, PeriodsAreAsPreciseAsWhatWasWritten) {
  EXPECT_EQ(parse_iso_time("1970-01-01")->first_ms, 0);
  EXPECT_EQ(parse_iso_time("1970-01-01")->last_ms, 86'399'999);
  EXPECT_EQ(format_iso_time(parse_iso_time("2024")->last_ms), "2024-12-31T23:59:59.999Z");
  EXPECT_EQ(format_iso_time(parse_iso_time("2024-02")->last_ms), "2024-02-29T23:59:59.999Z");
  EXPECT_EQ(format_iso_time(parse_iso_time("2023-12")->last_ms), "2023-12-31T23:59:59.999Z");
  EXPECT_EQ(format_iso_time(parse_iso_time("2026-03-01T12:30")->last_ms), "2026-03-01T12:30:59.999Z");
  const auto instant = parse_iso_time("2026-03-01 12:30:05.25");
  EXPECT_EQ(instant->first_ms, instant->last_ms);
  EXPECT_EQ(format_iso_time(instant->first_ms), "2026-03-01T12:30:05.250Z");
}

TEST(IsoTimeTest, ZonesMoveToUtc) {
  EXPECT_EQ(parse_iso_time("2026-03-01T01:00:00+02:00")->first_ms,
            parse_iso_time("2026-02-28T23:00:00Z")->first_ms);
  EXPECT_EQ(parse_iso_time("2026-03-01T01:00:00-0530")->first_ms,
            parse_iso_time("2026-03-01T06:30:00")->first_ms);
}

TEST(IsoTimeTest, WhatIsNoTimeIsRefused) {
  for (const char* text :
       {"", "yesterday", "24", "2024-13", "2024-02-30", "2024-00-01", "2024-1-1", "2024-01-01T",
        "2024-01-01T25:00", "2024-01-01T10:00:00X", "2024-01-01T10:00:00+24:00", "2024-01-01 ",
        "2024-01-01T10:00:00Zjunk", "2024-01-01T10:00:00.", "-2024-01-01"}) {
    const auto period = parse_iso_time(text);
    ASSERT_FALSE(period.ok()) << text;
    EXPECT_EQ(period.error().kind, ErrorKind::kInvalidArgument);
  }
}

}  // namespace
}  // namespace rhapsode
