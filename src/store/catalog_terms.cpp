// Catalog: keyword scores (FTS5's BM25 over encoded terms) and token frequencies.
#include <algorithm>
#include <unordered_map>

#include "store/catalog_state.h"
#include "store/word_lists.h"

namespace rhapsode::store {
namespace {

// rh_listed() looks ids up before bm25() is computed: filters come before the top-k.
constexpr char kScores[] =
    "SELECT rowid, bm25(term_index) FROM term_index WHERE term_index MATCH ? AND rh_listed(rowid)";

bool better(const TermHit& a, const TermHit& b) {
  return a.score != b.score ? a.score > b.score : a.passage < b.passage;
}

}  // namespace

Result<std::vector<TermHit>> Catalog::best_by_terms(std::span<const std::string> terms,
                                                    std::span<const int64_t> allowed, int count) const {
  std::vector<TermHit> best;
  const std::string query = any_term_query(terms);
  if (query.empty() || count <= 0) return best;
  state_->filter.ids = allowed;
  if (allowed.empty()) {
    RH_TRY(const std::vector<int64_t>* const visible, state_->visible_passages_now());
    state_->filter.ids = *visible;
  }
  RH_TRY(Statement rows, state_->database->prepare(kScores));
  rows.bind(1, query);
  // A heap whose front is the worst of the best so far.
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    const TermHit hit{rows.integer(0), -rows.real(1)};
    if (best.size() == static_cast<size_t>(count)) {
      if (!better(hit, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), better);
      best.pop_back();
    }
    best.push_back(hit);
    std::push_heap(best.begin(), best.end(), better);
  }
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

Result<std::vector<double>> Catalog::scores_by_terms(std::span<const std::string> terms,
                                                     std::span<const int64_t> ids) const {
  std::vector<double> scores(ids.size(), 0.0);
  const std::string query = any_term_query(terms);
  if (query.empty() || ids.empty()) return scores;
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  state_->filter.ids = sorted;
  RH_TRY(Statement rows, state_->database->prepare(kScores));
  rows.bind(1, query);
  std::unordered_map<int64_t, double> found;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    found.emplace(rows.integer(0), -rows.real(1));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (const auto hit = found.find(ids[i]); hit != found.end()) scores[i] = hit->second;
  }
  return scores;
}

Result<std::vector<int64_t>> Catalog::term_frequencies(std::span<const std::string> terms) const {
  std::vector<int64_t> counts;
  RH_TRY(Statement count,
         state_->database->prepare("SELECT count(*) FROM term_index WHERE term_index MATCH ?"));
  for (const std::string& term : terms) {
    const std::string query = any_term_query(std::span(&term, 1));
    if (query.empty()) {
      counts.push_back(0);
      continue;
    }
    count.reset();
    count.bind(1, query);
    RH_TRY(const bool row, count.step());
    counts.push_back(row ? count.integer(0) : 0);
  }
  return counts;
}

Result<TokenFrequencies> Catalog::token_frequencies(std::span<const int32_t> tokens) const {
  TokenFrequencies frequencies;
  RH_TRY(frequencies.passages,
         state_->database->number("SELECT value FROM counters WHERE name = 'passages'"));
  frequencies.counts.reserve(tokens.size());
  for (const int32_t token : tokens) {
    RH_TRY(const int64_t count,
           state_->database->number("SELECT passages FROM token_df WHERE token = ?", int64_t{token}));
    frequencies.counts.push_back(count);
  }
  return frequencies;
}

}  // namespace rhapsode::store
