#include "recall/time_preference.h"

#include <algorithm>

#include "text/time_spans.h"

namespace rhapsode::recall {

namespace {

// Beyond those wanted: further down nothing is within reach of the bonus, as a rule.
constexpr size_t kMore = 20;

}  // namespace

Status prefer_time(const store::Catalog& catalog, const text::DatePeriod& at, int count,
                   std::vector<Ranked>& ranked) {
  const size_t looked_at = std::min(ranked.size(), static_cast<size_t>(std::max(count, 0)) + kMore);
  for (size_t i = 0; i < looked_at; ++i) {
    RH_TRY(const std::string text, catalog.passage_text(ranked[i].passage));
    ranked[i].score += kMostTimeBonus * text::time_fit(text, at);
  }
  std::stable_sort(ranked.begin(), ranked.end(), ranks_before);
  return {};
}

}  // namespace rhapsode::recall
