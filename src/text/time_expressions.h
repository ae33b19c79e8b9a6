// Dates in running text: "yesterday", "last May", "two weeks ago", "6 May 2023", as periods of days.
//
// What is relative counts from the stamp of the message that says it, never from today: without a stamp it is
// unknown. Days are those of the stamp as written, in its own zone. English; what is vague ("a few days ago",
// "recently") is unknown. Threads: any. Cost: O(text).
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::text {

using Day = std::chrono::sys_days;

struct DatePeriod {
  Day first;
  Day last;  // inclusive

  // "2023-05-06", "2023-05" or "2023" for a day, a whole month or year; else the first day.
  std::string iso() const;
  bool operator==(const DatePeriod&) const = default;
};

// The period that an ISO 8601 date or time names ("2023", "2023-05", "2023-05-07T10:00:00Z").
std::optional<DatePeriod> period_of(std::string_view iso);

struct FoundDate {
  size_t begin = 0;  // bytes of the text
  size_t end = 0;
  DatePeriod period;
  bool relative = false;  // resolved against the stamp
};

// In the order of the text, not overlapping. `stamp`: ISO 8601, empty: unknown. Bare years count where
// `bare_years`, or behind a word such as "in", "since", "until".
std::vector<FoundDate> find_dates(std::string_view text, std::string_view stamp, bool bare_years = false);

// One expression as an ISO date ("2023-05-06", "2023-05", "2022"); empty: unknown, or none at all.
std::string resolve_date(std::string_view expression, std::string_view stamp);

}  // namespace rhapsode::text
