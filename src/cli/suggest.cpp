#include "cli/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace rhapsode::cli {
namespace {

size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view given, std::span<const std::string> candidates) {
  constexpr size_t kLongestName = 64;  // a longer text is no misspelt name, and the table above is quadratic
  if (given.size() > kLongestName) return "";
  std::string best;
  size_t fewest = std::max<size_t>(1, given.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // A name that was cut short counts as one edit, whatever the length of the rest.
    const size_t beginning = given.size() >= 3
                                 ? 1 + edits(given, std::string_view(candidate).substr(0, given.size()))
                                 : given.size() + candidate.size();
    const size_t distance = std::min(beginning, edits(given, candidate));
    if (distance < fewest) {
      fewest = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view given, std::span<const std::string> candidates) {
  const std::string name = nearest(given, candidates);
  return name.empty() ? "" : fmt::format("; did you mean '{}'?", name);
}

}  // namespace rhapsode::cli
