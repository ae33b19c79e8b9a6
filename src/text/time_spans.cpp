#include "text/time_spans.h"

#include <algorithm>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr size_t kMostBytes = 1 << 16;  // of a text that is looked at

// The last word before `at`, lower case; empty behind the end of a sentence.
std::string word_before(std::string_view text, size_t at) {
  while (at > 0 && (is_ascii_space(text[at - 1]) || text[at - 1] == '(' || text[at - 1] == ',')) --at;
  size_t begin = at;
  while (begin > 0 && is_ascii_letter(text[begin - 1])) --begin;
  return ascii_lower(text.substr(begin, at - begin));
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// What joins two dates to an interval: "to", "until", "through", "and" behind "between", dashes.
bool joins(std::string_view gap, bool between) {
  const std::string word = ascii_lower(trim(gap));
  return is_one_of(word, {"to", "until", "till", "through", "-", "–", "—", "up to", "to the year"}) ||
         (between && word == "and");
}

// "to present", "– now".
bool goes_on(std::string_view rest) {
  rest = trim(rest.substr(0, 40));
  for (const std::string_view lead : {"to ", "until ", "-", "–", "—", "through "}) {
    if (!rest.starts_with(lead)) continue;
    const std::string word = ascii_lower(trim(rest.substr(lead.size())).substr(0, 12));
    if (word.starts_with("present") || word.starts_with("now") || word.starts_with("the present") ||
        word.starts_with("today") || word.starts_with("date")) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<TimeSpan> time_spans(std::string_view text, std::string_view stamp) {
  text = text.substr(0, character_floor(text, kMostBytes));
  const std::vector<FoundDate> dates = find_dates(text, stamp, true);
  std::vector<TimeSpan> spans;
  for (size_t i = 0; i < dates.size(); ++i) {
    const FoundDate& date = dates[i];
    const std::string before = word_before(text, date.begin);
    TimeSpan span{date.begin, date.end, date.period.first, date.period.last, true};
    const bool has_next = i + 1 < dates.size();
    if (has_next && joins(text.substr(date.end, dates[i + 1].begin - date.end), before == "between") &&
        dates[i + 1].period.last >= date.period.first) {
      span.end = dates[++i].end;
      span.last = dates[i].period.last;
      span.point = false;
    } else if (is_one_of(before, {"since"}) || goes_on(text.substr(date.end))) {
      span.last.reset();
      span.point = false;
    } else if (is_one_of(before, {"until", "till"})) {
      span.first.reset();
      span.point = false;
    }
    spans.push_back(span);
  }
  return spans;
}

double time_fit(std::string_view text, const DatePeriod& at) {
  bool any = false;
  double best = -1;
  for (const TimeSpan& span : time_spans(text)) {
    any = true;
    double fit = -1;
    if (span.holds(at)) {
      fit = span.first && span.last ? 1 : 0.75;  // an interval with an open end says less
    } else if (span.point && span.last && *span.last < at.first) {
      // What began then may still be so: the less, the longer ago.
      const double gap_years = static_cast<double>((at.first - *span.last).count()) / 365.25;
      fit = gap_years <= 3 ? 0.25 - 0.25 * gap_years : -0.5;
    }
    best = std::max(best, fit);
  }
  return any ? best : 0;
}

}  // namespace rhapsode::text
