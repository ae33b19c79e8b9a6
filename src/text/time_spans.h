// When the statements of a text hold: "from 2007 to 2011", "since May 2010", "in 1998", "(2001–2004)".
//
// Threads: any. Cost: O(text).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "text/time_expressions.h"

namespace rhapsode::text {

struct TimeSpan {
  size_t begin = 0;  // bytes of the text
  size_t end = 0;
  std::optional<Day> first;  // unset: since ever ("until 2003")
  std::optional<Day> last;   // unset: no end is said ("since 2003")
  bool point = false;        // one date ("in 1998"): what it begins may go on

  bool holds(const DatePeriod& at) const {
    return (!first || *first <= at.last) && (!last || *last >= at.first);
  }
};

// In the order of the text. Without a stamp only dates with their year count.
std::vector<TimeSpan> time_spans(std::string_view text, std::string_view stamp = {});

// How well what a text says fits a period, from -1 (all its dates are of other times) through 0 (it says
// nothing of time, or both) to 1 (an interval that it states covers the period).
double time_fit(std::string_view text, const DatePeriod& at);

}  // namespace rhapsode::text
