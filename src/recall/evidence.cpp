#include "recall/evidence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "recall/links.h"
#include "recall/moments.h"
#include "text/mentions.h"
#include "text/search_terms.h"

namespace rhapsode::recall {

namespace {

constexpr int kMostTitled = 8;        // passages of one title: more, and it names nothing
constexpr int kMostTitledRead = 64;   // those behind filters included
constexpr double kLeastWalk = 1e-3;   // of the highest score: what is not reached
constexpr double kUnknownIdf = 10.0;  // of a term that no passage holds
constexpr int kTitleKind = static_cast<int>(text::MentionKind::kTitle);

using Scores = std::map<int64_t, double>;

// Passages whose title stands in the question, and of how many words it is.
struct Titled {
  std::map<int64_t, int> words;
  std::vector<int64_t> by_words;  // the longest title first
};

// A question's terms and how much each says.
struct Terms {
  std::vector<std::string> terms;
  std::vector<double> weights;
};

class Gathering {
 public:
  Gathering(const store::Catalog& catalog, Router& router, const Route& route, const EvidenceLimits& limits)
      : catalog_(catalog), router_(router), route_(route), limits_(limits) {}

  Result<std::vector<EvidenceCandidate>> run(const std::string& question);

 private:
  bool allowed(int64_t passage) const {
    return std::binary_search(route_.allowed.begin(), route_.allowed.end(), passage);
  }
  Status find_titled(const std::string& question);
  Status walk();
  Status choose();
  Status weigh_terms();
  Status read_texts();
  Status read_mentions();
  void describe_walks(EvidenceCandidate& candidate) const;
  double share(const std::set<std::string>& held, std::span<const size_t> of) const;

  const store::Catalog& catalog_;
  Router& router_;
  const Route& route_;
  const EvidenceLimits& limits_;
  std::vector<int64_t> best_;
  Titled titled_;
  LinkGraph links_;
  Scores walk_;
  Scores title_walk_;
  Terms terms_;
  std::vector<EvidenceCandidate> candidates_;
  std::map<int64_t, size_t> places_;
};

// Relative to the highest, as a logarithm.
float log_share(const Scores& scores, int64_t passage) {
  double highest = 0;
  for (const auto& [id, score] : scores) highest = std::max(highest, score);
  const auto found = scores.find(passage);
  const double share = found == scores.end() || highest <= 0 ? 0 : found->second / highest;
  return static_cast<float>(std::log(share + kLeastWalk));
}

Scores scores_of(const std::vector<std::pair<int64_t, double>>& ranking) {
  return Scores(ranking.begin(), ranking.end());
}

Status Gathering::find_titled(const std::string& question) {
  const std::vector<std::string> keys = text::phrase_keys(question);
  RH_TRY(std::vector<store::TitledPassage> rows, catalog_.titled(keys, kMostTitledRead));
  std::erase_if(rows, [&](const store::TitledPassage& row) { return !allowed(row.passage); });
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && rows[end].key == rows[begin].key) ++end;
    if (end - begin <= kMostTitled) {
      const std::string& key = keys[rows[begin].key];
      const int words = 1 + static_cast<int>(std::count(key.begin(), key.end(), ' '));
      for (size_t i = begin; i < end; ++i) {
        int& most = titled_.words[rows[i].passage];
        most = std::max(most, words);
      }
    }
    begin = end;
  }
  for (const auto& [passage, words] : titled_.words) titled_.by_words.push_back(passage);
  std::stable_sort(titled_.by_words.begin(), titled_.by_words.end(),
                   [&](int64_t a, int64_t b) { return titled_.words[a] > titled_.words[b]; });
  return {};
}

Status Gathering::walk() {
  std::vector<int64_t> seeds = best_;
  seeds.insert(seeds.end(), titled_.by_words.begin(), titled_.by_words.end());
  RH_TRY(links_, LinkGraph::around(catalog_, seeds, route_.allowed, {}));
  walk_ = scores_of(links_.graph().rank(best_));
  if (!titled_.by_words.empty()) title_walk_ = scores_of(links_.graph().rank(titled_.by_words));
  return {};
}

Status Gathering::choose() {
  const auto add = [&](const Ranked& ranked) {
    if (places_.try_emplace(ranked.passage, candidates_.size()).second) candidates_.push_back({ranked, {}});
  };
  const size_t found = std::min(route_.ranked.size(), static_cast<size_t>(limits_.found));
  for (size_t i = 0; i < found; ++i) add(route_.ranked[i]);
  std::vector<int64_t> more = titled_.by_words;
  for (const Scores* scores : {&walk_, &title_walk_}) {
    std::vector<std::pair<double, int64_t>> order;
    for (const auto& [passage, score] : *scores) order.emplace_back(-score, passage);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(limits_.walked)); ++i) {
      more.push_back(order[i].second);
    }
  }
  std::erase_if(more, [&](int64_t passage) { return places_.contains(passage) || !allowed(passage); });
  std::sort(more.begin(), more.end());
  more.erase(std::unique(more.begin(), more.end()), more.end());
  RH_TRY(const std::vector<Ranked> scored, router_.score(catalog_, more, route_));
  for (Ranked ranked : scored) {
    ranked.via = links_.way_from(ranked.passage, best_);
    add(ranked);
  }
  for (EvidenceCandidate& candidate : candidates_) {
    EvidenceRow& row = candidate.row;
    row[feature("latent")] = static_cast<float>(candidate.ranked.latent_z);
    row[feature("keywords")] = static_cast<float>(candidate.ranked.keywords_z);
    row[feature("fused")] = static_cast<float>(candidate.ranked.latent_z + candidate.ranked.keywords_z);
    row[feature("found")] = places_[candidate.ranked.passage] < found ? 1 : 0;
    row[feature("first")] = candidate.ranked.passage == best_.front() ? 1 : 0;
  }
  return {};
}

Status Gathering::weigh_terms() {
  terms_.terms = route_.terms;
  RH_TRY(const std::vector<int64_t> counts, catalog_.term_frequencies(terms_.terms));
  RH_TRY(const store::TokenFrequencies all, catalog_.token_frequencies({}));
  for (const int64_t count : counts) {
    terms_.weights.push_back(
        count == 0 ? kUnknownIdf
                   : inverse_frequency(static_cast<double>(all.passages), static_cast<double>(count)));
  }
  return {};
}

// Of the terms at these places, by weight, the share that is held.
double Gathering::share(const std::set<std::string>& held, std::span<const size_t> of) const {
  double all = 0, there = 0;
  for (const size_t place : of) {
    all += terms_.weights[place];
    if (held.contains(terms_.terms[place])) there += terms_.weights[place];
  }
  return all > 0 ? there / all : 0;
}

Status Gathering::read_texts() {
  std::vector<std::set<std::string>> held(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    RH_TRY(const std::string text, catalog_.passage_text(candidates_[i].ranked.passage));
    const std::vector<std::string> terms = text::search_terms(text);
    held[i] = std::set<std::string>(terms.begin(), terms.end());
    candidates_[i].row[feature("length")] =
        static_cast<float>(std::log(1.0 + static_cast<double>(text.size())) / 7);
  }
  std::vector<size_t> all(terms_.terms.size()), lacking;
  const std::set<std::string>& first = held[places_[best_.front()]];
  for (size_t place = 0; place < all.size(); ++place) {
    all[place] = place;
    if (!first.contains(terms_.terms[place])) lacking.push_back(place);
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    candidates_[i].row[feature("coverage")] = static_cast<float>(share(held[i], all));
    candidates_[i].row[feature("new_coverage")] = static_cast<float>(share(held[i], lacking));
  }
  return {};
}

void Gathering::describe_walks(EvidenceCandidate& candidate) const {
  const int64_t passage = candidate.ranked.passage;
  EvidenceRow& row = candidate.row;
  row[feature("walk")] = log_share(walk_, passage);
  row[feature("title_walk")] = log_share(title_walk_, passage);
  row[feature("walk_coverage")] = row[feature("walk")] * row[feature("coverage")];
  row[feature("any_titled")] = titled_.words.empty() ? 0 : 1;
  if (const auto titled = titled_.words.find(passage); titled != titled_.words.end()) {
    row[feature("titled")] = 1;
    row[feature("title_words")] = static_cast<float>(titled->second) / 3;
  }
  for (const int64_t best : best_) {
    for (const index::Link& link : links_.graph().links_of(best)) {
      float& weight = row[feature("link_to_best")];
      if (link.passage == passage) weight = std::max(weight, link.weight);
    }
  }
}

// Who names whom: mentions of the candidates that others of them have as their title.
Status Gathering::read_mentions() {
  std::vector<int64_t> ids;
  for (const EvidenceCandidate& candidate : candidates_) ids.push_back(candidate.ranked.passage);
  RH_TRY(const std::vector<store::PassageMentionRow> rows, catalog_.mentions_of(ids));
  std::map<int64_t, std::vector<int64_t>> titles;  // by mention, who is called so
  for (const store::PassageMentionRow& row : rows) {
    if (row.kind == kTitleKind) titles[row.mention].push_back(row.passage);
  }
  const std::set<std::string> asked(terms_.terms.begin(), terms_.terms.end());
  for (const auto& [mention, holders] : titles) {
    RH_TRY(const std::string key, catalog_.mention_key(mention));
    const std::vector<std::string> terms = text::search_terms(key);
    if (terms.empty()) continue;
    const auto there =
        std::count_if(terms.begin(), terms.end(), [&](auto& term) { return asked.contains(term); });
    const auto share = static_cast<float>(there) / static_cast<float>(terms.size());
    for (const int64_t holder : holders) {
      float& coverage = candidates_[places_[holder]].row[feature("title_coverage")];
      coverage = std::max(coverage, share);
    }
  }
  std::map<int64_t, std::set<int64_t>> names;  // whom each names
  for (const store::PassageMentionRow& row : rows) {
    const auto called = titles.find(row.mention);
    if (called == titles.end() || called->second.size() > kMostTitled) continue;
    for (const int64_t other : called->second) {
      if (other != row.passage) names[row.passage].insert(other);
    }
  }
  for (EvidenceCandidate& candidate : candidates_) {
    EvidenceRow& row = candidate.row;
    const int64_t passage = candidate.ranked.passage;
    const std::set<int64_t>& named = names[passage];
    for (size_t i = 0; i < best_.size(); ++i) {
      const float weight = 1.0f / static_cast<float>(i + 1);
      if (names[best_[i]].contains(passage)) row[feature("named_by_best")] += weight;
      if (named.contains(best_[i])) row[feature("names_best")] += weight;
    }
    const bool by_titled = std::any_of(titled_.by_words.begin(), titled_.by_words.end(),
                                       [&](int64_t titled) { return names[titled].contains(passage); });
    row[feature("named_by_titled")] = by_titled ? 1 : 0;
    row[feature("named_by_titled_coverage")] = by_titled ? row[feature("coverage")] : 0;
  }
  return {};
}

Result<std::vector<EvidenceCandidate>> Gathering::run(const std::string& question) {
  if (route_.ranked.empty()) return std::vector<EvidenceCandidate>();
  for (size_t i = 0; i < std::min(route_.ranked.size(), static_cast<size_t>(limits_.best)); ++i) {
    best_.push_back(route_.ranked[i].passage);
  }
  RH_TRY_STATUS(find_titled(question));
  RH_TRY_STATUS(walk());
  RH_TRY_STATUS(choose());
  RH_TRY_STATUS(weigh_terms());
  RH_TRY_STATUS(read_texts());
  for (EvidenceCandidate& candidate : candidates_) describe_walks(candidate);
  RH_TRY_STATUS(read_mentions());
  return std::move(candidates_);
}

}  // namespace

Result<std::vector<EvidenceCandidate>> gather_evidence(const store::Catalog& catalog, Router& router,
                                                       const std::string& question, const Route& route,
                                                       const EvidenceLimits& limits) {
  return Gathering(catalog, router, route, limits).run(question);
}

void add_judgement(std::span<EvidenceCandidate> candidates) {
  std::vector<double> gains;
  for (const EvidenceCandidate& candidate : candidates) {
    if (candidate.ranked.judged) gains.push_back(*candidate.ranked.judged);
  }
  const Moments moments = moments_of(gains);
  for (EvidenceCandidate& candidate : candidates) {
    if (!candidate.ranked.judged) continue;
    candidate.row[feature("judged")] = static_cast<float>(moments.z(*candidate.ranked.judged));
    candidate.row[feature("was_judged")] = 1;
  }
}

void rank_evidence(const EvidenceRow& weights, std::vector<EvidenceCandidate>& candidates) {
  for (EvidenceCandidate& candidate : candidates) {
    candidate.ranked.score = evidence_score(weights, candidate.row);
  }
  std::sort(candidates.begin(), candidates.end(), [](const EvidenceCandidate& a, const EvidenceCandidate& b) {
    return ranks_before(a.ranked, b.ranked);
  });
}

}  // namespace rhapsode::recall
