#include "recall/utc_time.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <ctime>

namespace rhapsode::recall {

namespace {

// Digits of a fixed width; -1 when they are not there.
int digits(std::string_view& text, size_t width) {
  if (text.size() < width) return -1;
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + width, value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + width || text[0] == '-') return -1;
  text.remove_prefix(width);
  return value;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text[0] != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

Result<std::string> utc_end_of(std::string_view text) {
  const std::string given(text);
  const Error bad =
      make_error(ErrorKind::kInvalidArgument,
                 "'{}' is no time: give a date such as 2024-05-01 or 2024-05-01T12:00:00Z", given);
  using std::chrono::day, std::chrono::month, std::chrono::year;
  const int y = digits(text, 4);
  if (y < 0) return bad;
  unsigned m = 12;
  std::chrono::year_month_day date{year(y), month(12), day(31)};
  if (take(text, '-')) {
    m = static_cast<unsigned>(digits(text, 2));
    date = std::chrono::year_month_day_last(year(y), std::chrono::month_day_last(month(m)));
    if (take(text, '-')) date = std::chrono::year_month_day(year(y), month(m), day(digits(text, 2)));
  }
  if (!date.ok()) return bad;
  int clock[3] = {23, 59, 59};
  if (take(text, 'T') || take(text, ' ')) {
    clock[1] = clock[2] = 0;
    clock[0] = digits(text, 2);
    if (take(text, ':')) clock[1] = digits(text, 2);
    if (take(text, ':')) clock[2] = digits(text, 2);
  }
  take(text, 'Z');
  const bool holds =
      clock[0] >= 0 && clock[0] < 24 && clock[1] >= 0 && clock[1] < 60 && clock[2] >= 0 && clock[2] < 61;
  if (!text.empty() || !holds) return bad;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", y, static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()), clock[0], clock[1], clock[2]);
}

}  // namespace rhapsode::recall
