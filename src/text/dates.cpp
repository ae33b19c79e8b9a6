#include "text/dates.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <optional>

#include "text/text_scan.h"

namespace rhapsode::text {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"jan", "feb", "mar", "apr", "may", "jun",
                                                      "jul", "aug", "sep", "oct", "nov", "dec"};

// 1-12 for a name that begins like a month's and is no longer than its full name; else 0.
int month_of(std::string_view word) {
  if (word.size() < 3 || word.size() > 9) return 0;
  const std::string lower = ascii_lower(word.substr(0, 3));
  for (size_t i = 0; i < kMonths.size(); ++i) {
    if (lower == kMonths[i]) return static_cast<int>(i) + 1;
  }
  return 0;
}

std::optional<int> number(std::string_view digits) {
  if (digits.empty() || digits.size() > 9) return std::nullopt;
  int value = 0;
  for (const char c : digits) {
    if (!is_ascii_digit(c)) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

struct Parts {
  int year = 0, month = 0, day = 0;
  std::string time;  // "10:30:00"
  std::string zone;  // "Z", "+02:00"

  std::string iso() const {
    if (year < 1 || year > 9999 || month > 12 || day > 31 || (day > 0 && month == 0)) return {};
    std::string out = fmt::format("{:04}", year);
    if (month > 0) out += fmt::format("-{:02}", month);
    if (day > 0) out += fmt::format("-{:02}", day);
    if (day > 0 && !time.empty()) out += "T" + time + zone;
    return out;
  }
};

// "10:30", "10:30:00.123" to "10:30:00"; empty if it is no time.
std::string time_of(std::string_view word) {
  const std::string_view whole = word.substr(0, word.find_first_of(".,"));
  std::array<int, 3> parts{};
  size_t at = 0;
  for (size_t i = 0; i < 3 && at <= whole.size(); ++i) {
    const size_t colon = std::min(whole.find(':', at), whole.size());
    const auto value = number(whole.substr(at, colon - at));
    if (!value || *value > (i == 0 ? 23 : 60)) return {};
    parts[i] = *value;
    at = colon + 1;
  }
  if (at <= whole.size() || whole.find(':') == std::string_view::npos) return {};
  return fmt::format("{:02}:{:02}:{:02}", parts[0], parts[1], parts[2]);
}

// "+0200", "+02:00", "Z", "GMT"; empty if it is no zone.
std::string zone_of(std::string_view word) {
  if (word == "Z" || word == "z" || word == "GMT" || word == "UTC" || word == "UT") return "Z";
  if (word.size() < 5 || (word[0] != '+' && word[0] != '-')) return {};
  const auto hours = number(word.substr(1, 2));
  const auto minutes = number(word.substr(word[3] == ':' ? 4 : 3));
  if (!hours || !minutes || *hours > 14 || *minutes > 59) return {};
  if (*hours == 0 && *minutes == 0) return "Z";
  return fmt::format("{}{:02}:{:02}", word[0], *hours, *minutes);
}

// "2001-07-05", "2001/7/5", "2001-07", "1851".
bool read_numeric_date(std::string_view word, Parts& parts) {
  std::array<int, 3> values{};
  size_t count = 0;
  for (size_t at = 0; at <= word.size(); ++count) {
    const size_t stop = std::min(word.find_first_of("-/.", at), word.size());
    const auto value = number(word.substr(at, stop - at));
    if (count == 3 || !value || (count == 0 && stop != 4) || (count > 0 && stop - at > 2)) return false;
    values[count] = *value;
    at = stop + 1;
  }
  parts.year = values[0];
  parts.month = values[1];
  parts.day = values[2];
  return true;
}

std::string iso_form(std::string_view text) {
  Parts parts;
  const size_t split = text.find_first_of("T ");
  if (!read_numeric_date(text.substr(0, split), parts)) return {};
  if (split == std::string_view::npos) return parts.iso();
  std::string_view rest = trim(text.substr(split + 1));
  const size_t zone = rest.find_first_of("Zz+- ");
  parts.time = time_of(rest.substr(0, zone));
  if (parts.time.empty()) return {};
  if (zone != std::string_view::npos) {
    const auto sign = trim(rest.substr(zone));
    parts.zone = zone_of(sign);
    if (parts.zone.empty()) return {};
  }
  return parts.iso();
}

// A month's name with a day and a year around it, maybe a time.
std::string named_form(std::string_view text) {
  Parts parts;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" ,-()", at);
    if (begin == std::string_view::npos) break;
    const bool signed_zone = begin > 0 && text[begin - 1] == '-' && !parts.time.empty();
    const size_t stop = std::min(text.find_first_of(" ,-()", begin), text.size());
    const std::string_view word =
        text.substr(signed_zone ? begin - 1 : begin, stop - begin + (signed_zone ? 1 : 0));
    at = stop;
    if (const auto value = number(word)) {
      if (*value > 31 || word.size() == 4 || (parts.day > 0 && parts.month > 0)) {
        if (parts.year > 0) return {};
        parts.year = word.size() == 2 ? *value + (*value < 70 ? 2000 : 1900) : *value;
      } else {
        if (parts.day > 0) return {};
        parts.day = *value;
      }
    } else if (const std::string time = time_of(word); !time.empty()) {
      parts.time = time;
    } else if (const std::string zone = zone_of(word); !zone.empty()) {
      parts.zone = zone;
    } else if (const int month = month_of(word); month > 0 && parts.month == 0) {
      parts.month = month;
    } else if (const auto day = number(word.substr(0, word.size() - std::min<size_t>(2, word.size())));
               day && *day <= 31) {
      parts.day = *day;  // "5th"
    }
  }
  return parts.month > 0 && parts.year > 0 ? parts.iso() : std::string();
}

}  // namespace

std::string iso_date_of_seconds(int64_t seconds) {
  constexpr int64_t kYear10000 = 253402300800;
  if (seconds < 0 || seconds >= kYear10000) return {};
  const auto days = std::chrono::sys_days(std::chrono::days(seconds / 86400));
  const std::chrono::year_month_day date(days);
  const int64_t rest = seconds % 86400;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), rest / 3600,
                     rest / 60 % 60, rest % 60);
}

std::string iso_date(std::string_view text) {
  text = trim(text);
  constexpr size_t kLongest = 100;
  if (text.empty() || text.size() > kLongest) return {};
  if (text.find_first_not_of("0123456789") == std::string_view::npos &&
      (text.size() == 10 || text.size() == 13)) {
    int64_t value = 0;
    for (const char c : text.substr(0, 10)) value = value * 10 + (c - '0');
    return iso_date_of_seconds(value);
  }
  std::string out = iso_form(text);
  return out.empty() ? named_form(text) : out;
}

}  // namespace rhapsode::text
