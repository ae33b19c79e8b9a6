#include "text/time_expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/iso_time.h"
#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

using std::chrono::days;
using std::chrono::months;
using std::chrono::year;
using std::chrono::year_month;
using std::chrono::year_month_day;
using std::chrono::years;

constexpr std::array<std::string_view, 12> kMonths = {"january",   "february", "march",    "april",
                                                      "may",       "june",     "july",     "august",
                                                      "september", "october",  "november", "december"};
constexpr std::array<std::string_view, 7> kWeekdays = {"sunday",   "monday", "tuesday", "wednesday",
                                                       "thursday", "friday", "saturday"};
constexpr std::array<std::string_view, 13> kNumbers = {"zero", "one",    "two",   "three", "four",
                                                       "five", "six",    "seven", "eight", "nine",
                                                       "ten",  "eleven", "twelve"};
constexpr std::array<std::string_view, 16> kBeforeYears = {
    "in",   "since", "until",  "till",  "from",  "to",   "by",     "of",
    "year", "and",   "before", "after", "early", "late", "during", "through"};

struct Word {
  size_t begin = 0;
  size_t end = 0;
  std::string text;  // lower case
};

// Dashes and quotes of Unicode's general punctuation (E2 80 ..) part words.
bool is_word_at(std::string_view text, size_t at) {
  for (size_t lead = at >= 2 ? at - 2 : 0; lead <= at; ++lead) {
    if (text.substr(lead, 2) == "\xE2\x80") return false;
  }
  return is_identifier_byte(text[at]) || text[at] == '\'';
}

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (size_t at = 0; at < text.size();) {
    if (!is_word_at(text, at)) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && is_word_at(text, end)) ++end;
    words.push_back({at, end, ascii_lower(text.substr(at, end - at))});
    at = end;
  }
  return words;
}

std::optional<int> digits(std::string_view word) {
  if (word.empty() || word.size() > 4 || word.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::atoi(std::string(word).c_str());
}

std::optional<int> count_of(std::string_view word) {
  if (word == "a" || word == "an") return 1;
  for (size_t i = 1; i < kNumbers.size(); ++i) {
    if (word == kNumbers[i]) return static_cast<int>(i);
  }
  return digits(word);
}

// A day of a month: "6", "6th".
std::optional<int> month_day(std::string_view word) {
  if (word.size() > 2) {
    const std::string_view ending = word.substr(word.size() - 2);
    if (ending != "th" && ending != "st" && ending != "nd" && ending != "rd") return std::nullopt;
    word.remove_suffix(2);
  }
  const auto value = digits(word);
  return value && word.size() <= 2 && *value >= 1 && *value <= 31 ? value : std::nullopt;
}

// 1-12; abbreviations need three letters, and "may" or "mar" are only taken where a number stands by.
unsigned month_of(std::string_view word) {
  if (word.size() < 3) return 0;
  for (size_t i = 0; i < kMonths.size(); ++i) {
    const bool short_form = word.size() == 3 || (word == "sept");
    if (word == kMonths[i] || (short_form && kMonths[i].starts_with(word)))
      return static_cast<unsigned>(i) + 1;
  }
  return 0;
}

std::optional<unsigned> weekday_of(std::string_view word) {
  for (size_t i = 0; i < kWeekdays.size(); ++i) {
    if (word == kWeekdays[i]) return static_cast<unsigned>(i);
  }
  return std::nullopt;
}

bool is_year(const std::optional<int>& value) {
  return value && *value >= 1000 && *value <= 2999;
}

DatePeriod one_day(Day day) {
  return {day, day};
}
DatePeriod month_period(year_month month) {
  return {Day(month / 1), Day(month / std::chrono::last)};
}
DatePeriod year_period(year value) {
  return {Day(value / 1 / 1), Day(value / 12 / 31)};
}
std::optional<DatePeriod> day_period(int y, unsigned m, int d) {
  const year_month_day date = year(y) / static_cast<int>(m) / d;
  if (!date.ok()) return std::nullopt;
  return one_day(Day(date));
}

year_month month_at(Day day) {
  const year_month_day date(day);
  return date.year() / date.month();
}

class DateFinder {
 public:
  DateFinder(std::string_view text, std::string_view stamp, bool bare_years)
      : text_(text), words_(words_of(text)), bare_years_(bare_years) {
    if (const auto period = period_of(stamp); period && period->first == period->last) stamp_ = period->first;
  }

  std::vector<FoundDate> find() && {
    std::vector<FoundDate> found;
    for (size_t i = 0; i < words_.size();) {
      used_ = 0;
      relative_ = false;
      const auto period = date_at(i);
      if (!period) {
        ++i;
        continue;
      }
      found.push_back({words_[i].begin, words_[i + used_ - 1].end, *period, relative_});
      i += used_;
    }
    return found;
  }

 private:
  std::string_view word(size_t i) const {
    return i < words_.size() ? std::string_view(words_[i].text) : std::string_view();
  }
  // What stands between two words: " ", ", ", "-", ...
  std::string_view between(size_t i) const {
    if (i + 1 >= words_.size()) return {};
    return text_.substr(words_[i].end, words_[i + 1].begin - words_[i].end);
  }
  // Words i and i + 1 belong to one phrase.
  bool close(size_t i) const {
    const std::string_view gap = trim(between(i));
    return gap.empty() || gap == "," || gap == "of";
  }
  std::optional<DatePeriod> take(size_t words, std::optional<DatePeriod> period, bool relative = false) {
    used_ = words;
    relative_ = relative;
    return period;
  }

  std::optional<DatePeriod> date_at(size_t i) {
    if (auto period = numeric_at(i)) return period;
    if (auto period = named_at(i)) return period;
    if (auto period = relative_at(i)) return period;
    return bare_year_at(i);
  }

  // "2023-05-06", "2023/5/6", "2023-05".
  std::optional<DatePeriod> numeric_at(size_t i) {
    const auto y = digits(word(i));
    const auto m = digits(word(i + 1));
    if (word(i).size() != 4 || !is_year(y) || !m || word(i + 1).size() > 2 || *m < 1 || *m > 12)
      return std::nullopt;
    const std::string_view gap = between(i);
    if (gap != "-" && gap != "/") return std::nullopt;
    // The time behind a "T" belongs to the word of the day.
    std::string_view last = word(i + 2);
    last = last.substr(0, last.find('t'));
    const auto d = digits(last);
    if (between(i + 1) == gap && d && last.size() <= 2) {
      return take(3, day_period(*y, static_cast<unsigned>(*m), *d));
    }
    if (word(i + 1).size() != 2 || gap != "-") return std::nullopt;
    return take(2, month_period(year(*y) / *m));
  }

  // "6 May 2023", "May 6, 2023", "May 2023", "6th of May", "May 6".
  std::optional<DatePeriod> named_at(size_t i) {
    if (const auto d = month_day(word(i)); d && close(i)) {
      const size_t at = word(i + 1) == "of" ? i + 2 : i + 1;
      if (const unsigned m = month_of(word(at)); m > 0) {
        const auto y = digits(word(at + 1));
        if (is_year(y) && close(at)) return take(at + 2 - i, day_period(*y, m, *d));
        return nearest_day(at + 1 - i, m, *d);
      }
    }
    const unsigned m = month_of(word(i));
    if (m == 0 || (i > 0 && month_day(word(i - 1)) && close(i - 1))) return std::nullopt;
    const auto y = digits(word(i + 1));
    if (is_year(y) && close(i)) return take(2, month_period(year(*y) / static_cast<int>(m)));
    if (word(i + 1) == "of" && is_year(digits(word(i + 2)))) {
      return take(3, month_period(year(*digits(word(i + 2))) / static_cast<int>(m)));
    }
    if (const auto d = month_day(word(i + 1)); d && close(i)) {
      const auto year_behind = digits(word(i + 2));
      if (is_year(year_behind) && close(i + 1)) return take(3, day_period(*year_behind, m, *d));
      return nearest_day(2, m, *d);
    }
    // A month alone only behind "in" and the like: "May" is a name and a verb too.
    const std::string_view before = i > 0 ? word(i - 1) : std::string_view();
    const bool led = before == "in" || before == "since" || before == "until" || before == "by";
    if (!led || !stamp_) return std::nullopt;
    return take(1, nearest_month(m), true);
  }

  std::optional<DatePeriod> nearest_day(size_t words, unsigned m, int d) {
    if (!stamp_) return std::nullopt;
    std::optional<DatePeriod> best;
    for (int offset = -1; offset <= 1; ++offset) {
      const int y = static_cast<int>(year_month_day(*stamp_).year()) + offset;
      const auto period = day_period(y, m, d);
      if (!period) continue;
      const auto distance = [&](const DatePeriod& p) { return std::abs((p.first - *stamp_).count()); };
      if (!best || distance(*period) < distance(*best)) best = period;
    }
    return take(words, best, true);
  }

  DatePeriod nearest_month(unsigned m) const {
    const year_month now = month_at(*stamp_);
    int behind = static_cast<int>(static_cast<unsigned>(now.month())) - static_cast<int>(m);
    if (behind > 6) behind -= 12;
    if (behind < -5) behind += 12;
    return month_period(now - months(behind));
  }

  std::optional<DatePeriod> relative_at(size_t i) {
    const std::string_view first = word(i);
    // The longest first; without a stamp nothing can be said, and nothing is guessed.
    if (first == "the" && word(i + 1) == "day" && (word(i + 2) == "before" || word(i + 2) == "after")) {
      if (word(i + 2) == "before" && word(i + 3) == "yesterday") return from_stamp(4, -2);
      if (word(i + 2) == "after" && word(i + 3) == "tomorrow") return from_stamp(4, 2);
    }
    if (first == "yesterday") return from_stamp(1, -1);
    if (first == "today" || first == "tonight") return from_stamp(1, 0);
    if (first == "tomorrow") return from_stamp(1, 1);
    if (first == "last" && word(i + 1) == "night") return from_stamp(2, -1);
    if (first == "this" &&
        (word(i + 1) == "morning" || word(i + 1) == "afternoon" || word(i + 1) == "evening")) {
      return from_stamp(2, 0);
    }
    if (auto period = counted_at(i)) return period;
    if (first == "last" || first == "this" || first == "next") return named_unit(i);
    if (const auto weekday = weekday_of(first); weekday && stamp_) {
      return take(1, one_day(weekday_before(*weekday)), true);
    }
    return std::nullopt;
  }

  std::optional<DatePeriod> from_stamp(size_t words, int offset) {
    if (!stamp_) return std::nullopt;
    return take(words, one_day(*stamp_ + days(offset)), true);
  }

  // "two weeks ago", "a couple of years ago", "in 3 days", "10 days from now".
  std::optional<DatePeriod> counted_at(size_t i) {
    const bool inward = word(i) == "in";
    size_t at = inward ? i + 1 : i;
    auto count = count_of(word(at));
    if (word(at) == "a" && word(at + 1) == "couple") {
      count = 2;
      at += word(at + 2) == "of" ? 2 : 1;
    }
    if (!count || *count > 1000) return std::nullopt;
    const std::string_view unit = word(at + 1);
    const bool ago = word(at + 2) == "ago";
    const bool onward = inward || (word(at + 2) == "from" && word(at + 3) == "now");
    if (!stamp_ || (!ago && !onward)) return std::nullopt;
    const size_t words = at + (ago ? 3 : inward ? 2 : 4) - i;
    return take(words, shifted(unit, ago ? -*count : *count), true);
  }

  std::optional<DatePeriod> shifted(std::string_view unit, int by) const {
    if (unit.ends_with('s')) unit.remove_suffix(1);
    if (unit == "day") return one_day(*stamp_ + days(by));
    if (unit == "week") return one_day(*stamp_ + days(7 * by));
    if (unit == "fortnight") return one_day(*stamp_ + days(14 * by));
    if (unit == "month") return month_period(month_at(*stamp_) + months(by));
    if (unit == "year") return year_period(year_month_day(*stamp_).year() + years(by));
    if (unit == "decade") return year_period(year_month_day(*stamp_).year() + years(10 * by));
    return std::nullopt;
  }

  // "last week", "this month", "next year", "last Friday", "last May".
  std::optional<DatePeriod> named_unit(size_t i) {
    if (!stamp_) return std::nullopt;
    const int by = word(i) == "last" ? -1 : word(i) == "next" ? 1 : 0;
    const std::string_view unit = word(i + 1);
    if (unit == "week") {
      const auto monday = *stamp_ - (std::chrono::weekday(*stamp_) - std::chrono::Monday) + days(7 * by);
      return take(2, DatePeriod{monday, monday + days(6)}, true);
    }
    if (unit == "month" || unit == "year") return take(2, shifted(unit, by), true);
    if (const auto weekday = weekday_of(unit)) {
      return take(2, one_day(by < 0 ? weekday_before(*weekday) : weekday_after(*weekday)), true);
    }
    const unsigned m = month_of(unit);
    if (m == 0 || unit.size() <= 2) return std::nullopt;
    const year_month now = month_at(*stamp_);
    const auto behind = static_cast<int>(static_cast<unsigned>(now.month())) - static_cast<int>(m);
    if (by < 0) return take(2, month_period(now - months(behind > 0 ? behind : behind + 12)), true);
    if (by > 0) return take(2, month_period(now + months(behind < 0 ? -behind : 12 - behind)), true);
    return take(2, month_period(now.year() / static_cast<int>(m)), true);
  }

  Day weekday_before(unsigned weekday) const {
    const auto back = std::chrono::weekday(*stamp_) - std::chrono::weekday(weekday);
    return *stamp_ - (back.count() == 0 ? days(7) : back);
  }
  Day weekday_after(unsigned weekday) const {
    const auto ahead = std::chrono::weekday(weekday) - std::chrono::weekday(*stamp_);
    return *stamp_ + (ahead.count() == 0 ? days(7) : ahead);
  }

  std::optional<DatePeriod> bare_year_at(size_t i) {
    const auto y = digits(word(i));
    if (word(i).size() != 4 || !is_year(y)) return std::nullopt;
    const std::string_view before = i > 0 ? word(i - 1) : std::string_view();
    const bool led = std::find(kBeforeYears.begin(), kBeforeYears.end(), before) != kBeforeYears.end();
    if (!bare_years_ && !led) return std::nullopt;
    return take(1, year_period(year(*y)));
  }

  std::string_view text_;
  std::vector<Word> words_;
  bool bare_years_;
  std::optional<Day> stamp_;
  size_t used_ = 0;
  bool relative_ = false;
};

}  // namespace

std::string DatePeriod::iso() const {
  const year_month_day begin(first);
  const year_month month = begin.year() / begin.month();
  const std::string y = fmt::format("{:04}", static_cast<int>(begin.year()));
  if (first != last && *this == year_period(begin.year())) return y;
  const std::string m = fmt::format("{}-{:02}", y, static_cast<unsigned>(begin.month()));
  if (first != last && *this == month_period(month)) return m;
  return fmt::format("{}-{:02}", m, static_cast<unsigned>(begin.day()));
}

std::optional<DatePeriod> period_of(std::string_view iso) {
  // The day as written: the zone says when it was in UTC, not which day it was.
  const std::string_view date = iso.substr(0, iso.find_first_of("T "));
  const auto parsed = parse_iso_time(date);
  if (date.empty() || !parsed.ok()) return std::nullopt;
  using std::chrono::milliseconds;
  const auto day_of = [](int64_t ms) {
    return std::chrono::floor<days>(std::chrono::sys_time<milliseconds>(milliseconds(ms)));
  };
  return DatePeriod{day_of(parsed->first_ms), day_of(parsed->last_ms)};
}

std::vector<FoundDate> find_dates(std::string_view text, std::string_view stamp, bool bare_years) {
  return DateFinder(text, stamp, bare_years).find();
}

std::string resolve_date(std::string_view expression, std::string_view stamp) {
  const std::vector<FoundDate> found = find_dates(expression, stamp, true);
  return found.empty() ? std::string() : found.front().period.iso();
}

}  // namespace rhapsode::text
