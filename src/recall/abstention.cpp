#include "recall/abstention.h"

#include <algorithm>
#include <set>

#include "text/search_terms.h"

namespace rhapsode::recall {

namespace {

// A question's number is the thing asked about more often than its other words are.
constexpr double kNumberWeight = 2.0;

bool has_digit(std::string_view term) {
  return std::any_of(term.begin(), term.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

double coverage_of(std::span<const std::string> terms, std::span<const std::string> texts) {
  std::set<std::string> present;
  for (const std::string& text : texts) {
    const std::vector<std::string> found = text::search_terms(text);
    present.insert(found.begin(), found.end());
  }
  double covered = 0;
  double total = 0;
  for (const std::string& term : terms) {
    const double weight = has_digit(term) ? kNumberWeight : 1.0;
    total += weight;
    if (present.contains(term)) covered += weight;
  }
  return total > 0 ? covered / total : 1.0;
}

bool is_unfit(double coverage) {
  // Calibrated on 70 questions with an answer in the memory and 70 of another subject (docs/results.md).
  constexpr double kLeastCoverage = 0.5;
  return coverage < kLeastCoverage;
}

bool is_refusal(std::string_view answer) {
  std::string plain;
  for (char c : answer) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || lower == ' ') plain += lower;
  }
  return plain.find("not in the documents") != std::string::npos ||
         plain.find("not in the provided documents") != std::string::npos;
}

}  // namespace rhapsode::recall
