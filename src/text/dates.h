// Dates as people and programs write them, to ISO 8601.
//
// Threads: any. Cost: O(text), texts above 100 bytes are no dates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rhapsode::text {

// "2001-07-05", "2001-07-05T10:30:00Z", "1851"; from ISO forms, "05-Jul-2001", "Thu, 5 Jul 2001 10:30:00
// +0200", "July 5, 2001", "2001/07/05", seconds or milliseconds since 1970. Empty: not understood, or
// ambiguous as "01/02/2003" is.
std::string iso_date(std::string_view text);

// Seconds since 1970, in UTC; empty outside of the years 1970-9999.
std::string iso_date_of_seconds(int64_t seconds);

}  // namespace rhapsode::text
