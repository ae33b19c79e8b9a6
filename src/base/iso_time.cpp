#include "base/iso_time.h"

#include <chrono>
#include <optional>

#include "base/text_check.h"

namespace rhapsode {
namespace {

constexpr int64_t kSecond = 1000;
constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;

class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool done() const { return rest_.empty(); }
  bool take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<int> digits(size_t count) {
    if (rest_.size() < count) return std::nullopt;
    int value = 0;
    for (const char c : rest_.substr(0, count)) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    rest_.remove_prefix(count);
    return value;
  }
  // Digits behind the point, as milliseconds; finer ones are dropped.
  std::optional<int> fraction_ms() {
    int value = 0;
    size_t count = 0;
    for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; rest_.remove_prefix(1), ++count) {
      if (count < 3) value = value * 10 + (rest_.front() - '0');
    }
    if (count == 0) return std::nullopt;
    for (; count < 3; ++count) value *= 10;
    return value;
  }

 private:
  std::string_view rest_;
};

int64_t ms_of(std::chrono::year_month_day date) {
  return std::chrono::sys_days(date).time_since_epoch().count() * kDay;
}

// Z, +HH:MM, +HHMM, +HH or nothing.
std::optional<int64_t> zone_offset(Cursor& cursor) {
  if (cursor.done() || cursor.take('Z') || cursor.take('z')) return 0;
  const bool west = cursor.take('-');
  if (!west && !cursor.take('+')) return std::nullopt;
  const auto hours = cursor.digits(2);
  if (!hours || *hours > 23) return std::nullopt;
  int64_t offset = *hours * kHour;
  if (!cursor.done()) {
    static_cast<void>(cursor.take(':'));
    const auto minutes = cursor.digits(2);
    if (!minutes || *minutes > 59) return std::nullopt;
    offset += *minutes * kMinute;
  }
  return west ? -offset : offset;
}

// The time of day behind a date that begins at `day_ms`.
std::optional<IsoPeriod> parse_clock(Cursor& cursor, int64_t day_ms) {
  const auto hour = cursor.digits(2);
  if (!hour || *hour > 23 || !cursor.take(':')) return std::nullopt;
  const auto minute = cursor.digits(2);
  if (!minute || *minute > 59) return std::nullopt;
  IsoPeriod period;
  period.first_ms = day_ms + *hour * kHour + *minute * kMinute;
  period.last_ms = period.first_ms + kMinute - 1;
  if (cursor.take(':')) {
    const auto second = cursor.digits(2);
    if (!second || *second > 60) return std::nullopt;  // 60: a leap second
    period.first_ms += *second * kSecond;
    if (cursor.take('.') || cursor.take(',')) {
      const auto fraction = cursor.fraction_ms();
      if (!fraction) return std::nullopt;
      period.first_ms += *fraction;
    }
    period.last_ms = period.first_ms;
  }
  const auto offset = zone_offset(cursor);
  if (!offset) return std::nullopt;
  period.first_ms -= *offset;
  period.last_ms -= *offset;
  return period;
}

std::optional<IsoPeriod> parse(Cursor cursor) {
  using std::chrono::day, std::chrono::month, std::chrono::year;
  const auto y = cursor.digits(4);
  if (!y) return std::nullopt;
  if (cursor.done()) return IsoPeriod{ms_of(year(*y) / 1 / 1), ms_of(year(*y + 1) / 1 / 1) - 1};
  const auto m = cursor.take('-') ? cursor.digits(2) : std::nullopt;
  if (!m || *m < 1 || *m > 12) return std::nullopt;
  const auto y_m = year(*y) / month(static_cast<unsigned>(*m));
  if (cursor.done()) return IsoPeriod{ms_of(y_m / 1), ms_of((y_m + std::chrono::months(1)) / 1) - 1};
  const auto d = cursor.take('-') ? cursor.digits(2) : std::nullopt;
  if (!d || !(y_m / day(static_cast<unsigned>(*d))).ok()) return std::nullopt;
  const int64_t day_ms = ms_of(y_m / day(static_cast<unsigned>(*d)));
  if (cursor.done()) return IsoPeriod{day_ms, day_ms + kDay - 1};
  if (!cursor.take('T') && !cursor.take('t') && !cursor.take(' ')) return std::nullopt;
  const auto period = parse_clock(cursor, day_ms);
  return cursor.done() ? period : std::nullopt;
}

}  // namespace

Result<IsoPeriod> parse_iso_time(std::string_view text) {
  const auto period = parse(Cursor(text));
  if (period) return *period;
  return make_error(ErrorKind::kInvalidArgument,
                    "'{}' is not a time: write 2026-03-01 or 2026-03-01T12:30:00Z (ISO 8601)", shown(text));
}

std::string format_iso_time(int64_t ms) {
  using namespace std::chrono;
  const sys_time<milliseconds> time{milliseconds(ms)};
  const auto days_part = floor<days>(time);
  const year_month_day date(days_part);
  const hh_mm_ss clock(time - days_part);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace rhapsode
