#include "cli/quantity.h"

#include <fmt/format.h>

#include <cmath>

namespace rhapsode::cli {
namespace {

std::string scaled(double value, const char* const* units, int unit_count, int from) {
  int unit = 0;
  while (value >= 999.5 && unit + 1 < unit_count) {
    value /= 1000.0;
    ++unit;
  }
  const int decimals = unit >= from && value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

}  // namespace

std::string show_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " kB", " MB", " GB", " TB", " PB"};
  return scaled(static_cast<double>(bytes), kUnits, 6, 1);
}

std::string show_count(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  return scaled(static_cast<double>(count), kUnits, 5, 1);
}

std::string show_whole(uint64_t count) {
  std::string text = fmt::format("{}", count);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string show_rate(double per_second) {
  if (per_second < 100) return fmt::format("{:.1f}", per_second);
  return show_whole(static_cast<uint64_t>(std::llround(per_second)));
}

std::string show_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

}  // namespace rhapsode::cli
