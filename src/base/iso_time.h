// ISO 8601 times as they stand in documents and options, and their place on the UTC time line.
//
// Read: YYYY, YYYY-MM, YYYY-MM-DD, and with T (or a space) HH:MM, HH:MM:SS or HH:MM:SS.fff, then Z, +HH:MM,
// +HHMM or nothing (UTC). Units: milliseconds since 1970-01-01T00:00Z. Errors: kInvalidArgument with the
// text. Threads: any. Cost: O(length).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode {

// What was written, as a period: a day is all of its milliseconds, a time with seconds is one instant.
struct IsoPeriod {
  int64_t first_ms = 0;
  int64_t last_ms = 0;  // inclusive
};

Result<IsoPeriod> parse_iso_time(std::string_view text);

// "2026-03-01T12:30:00.250Z"
std::string format_iso_time(int64_t ms);

// The system clock, which may jump.
int64_t wall_clock_ms();

}  // namespace rhapsode
