#include "recall/router.h"

#include "recall/time_preference.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "text/search_terms.h"

namespace rhapsode::recall {

namespace {

// Enough for both moments, cheap to score exactly.
constexpr size_t kSample = 4096;

// The same passages whatever the question: those whose mixed ids are smallest.
std::vector<int64_t> fixed_sample(std::span<const int64_t> ids) {
  std::vector<int64_t> sample(ids.begin(), ids.end());
  if (sample.size() <= kSample) return sample;
  const auto mixed = [](int64_t id) {
    uint64_t x = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull;
    return x ^ (x >> 29);
  };
  std::nth_element(sample.begin(), sample.begin() + kSample, sample.end(),
                   [&](int64_t a, int64_t b) { return mixed(a) < mixed(b); });
  sample.resize(kSample);
  std::sort(sample.begin(), sample.end());
  return sample;
}

}  // namespace

double inverse_frequency(double passages, double count) {
  return std::log(1.0 + (passages - count + 0.5) / (count + 0.5));
}

Result<index::QuestionVectors> Router::question_vectors(const store::Catalog& catalog,
                                                        const std::string& question, Route& route) {
  RH_TRY(std::vector<int32_t> tokens, frame_.routing_question(question));
  const uint64_t before = encoder_.evaluated_tokens();
  RH_TRY(const std::vector<float> states, encoder_.question_states(tokens));
  route.probe_tokens = static_cast<int>(encoder_.evaluated_tokens() - before);
  const auto [first, last] = question_span(tokens.size());
  const std::span<const int32_t> asked = std::span<const int32_t>(tokens).subspan(first, last - first);
  RH_TRY(const store::TokenFrequencies frequencies, catalog.token_frequencies(asked));
  index::QuestionVectors vectors;
  const size_t width = whitening_.dimensions();
  vectors.dimensions = whitening_.dimensions();
  vectors.vectors.resize(asked.size() * width);
  whitening_.transform_question(std::span(states).subspan(first * width, asked.size() * width),
                                vectors.vectors);
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto passages = static_cast<double>(frequencies.passages);
    const auto count = static_cast<double>(frequencies.counts[i]);
    vectors.weights.push_back(static_cast<float>(inverse_frequency(passages, count)));
  }
  return vectors;
}

Result<std::vector<float>> Router::sentence_states(const std::string& sentence) {
  RH_TRY(const std::vector<int32_t> tokens, frame_.routing_question(sentence));
  RH_TRY(const std::vector<float> states, encoder_.question_states(tokens));
  const auto [first, last] = question_span(tokens.size());
  const auto width = static_cast<size_t>(whitening_.dimensions());
  std::vector<float> whitened((last - first) * width);
  whitening_.transform_question(std::span(states).subspan(first * width, whitened.size()), whitened);
  return whitened;
}

Result<std::vector<Ranked>> Router::score_with(const store::Catalog& catalog, std::span<const int64_t> ids,
                                               const Route& route, LatentScores& latent) {
  std::vector<double> keywords(ids.size(), 0.0);
  if (route.keywords) {
    RH_TRY(keywords, catalog.scores_by_terms(route.terms, ids));
  }
  if (route.latent) RH_TRY_STATUS(finder_.score(catalog, route.vectors, ids, latent));
  std::vector<Ranked> scored;
  for (size_t i = 0; i < ids.size(); ++i) {
    Ranked ranked{ids[i], 0, route.latent ? latent.known[ids[i]] : 0, keywords[i], 0, 0, std::nullopt};
    if (route.latent) ranked.latent_z = route.latent_moments.z(ranked.latent);
    if (route.keywords) ranked.keywords_z = route.keyword_moments.z(ranked.keywords);
    ranked.score = ranked.latent_z + ranked.keywords_z;
    scored.push_back(ranked);
  }
  return scored;
}

Result<std::vector<Ranked>> Router::score(const store::Catalog& catalog, std::span<const int64_t> ids,
                                          const Route& route) {
  LatentScores latent;
  return score_with(catalog, ids, route, latent);
}

Result<Route> Router::route(const store::Catalog& catalog, const std::string& question,
                            const RouteOptions& options) {
  Route route;
  route.latent = options.latent;
  route.keywords = options.keywords;
  RH_TRY(route.allowed, catalog.visible_passages(options.selection));
  route.terms = text::question_terms(question);
  if (route.allowed.empty()) return route;
  const std::vector<int64_t> sample = fixed_sample(route.allowed);
  const int depth = std::max(options.count * 4, 40);

  std::set<int64_t> candidates;
  RH_TRY(const bool everything, catalog.sees_all(options.selection));
  LatentScores latent;
  if (options.latent) {
    RH_TRY(route.vectors, question_vectors(catalog, question, route));
    RH_TRY(latent, finder_.find(catalog, route.vectors, route.allowed, everything, depth));
    candidates.insert(latent.best.begin(), latent.best.end());
    RH_TRY_STATUS(finder_.score(catalog, route.vectors, sample, latent));
    std::vector<double> values;
    for (int64_t id : sample) values.push_back(latent.known[id]);
    route.latent_moments = moments_of(values);
  }
  if (options.keywords) {
    const auto allowed = everything ? std::span<const int64_t>{} : std::span<const int64_t>(route.allowed);
    RH_TRY(const std::vector<store::TermHit> hits, catalog.best_by_terms(route.terms, allowed, depth));
    for (const store::TermHit& hit : hits) candidates.insert(hit.passage);
    RH_TRY(const std::vector<double> values, catalog.scores_by_terms(route.terms, sample));
    route.keyword_moments = moments_of(values);
  }
  const std::vector<int64_t> ids(candidates.begin(), candidates.end());
  RH_TRY(route.ranked, score_with(catalog, ids, route, latent));
  std::sort(route.ranked.begin(), route.ranked.end(), ranks_before);
  if (options.period) RH_TRY_STATUS(prefer_time(catalog, *options.period, options.count, route.ranked));
  if (static_cast<int>(route.ranked.size()) > options.count) route.ranked.resize(options.count);
  return route;
}

}  // namespace rhapsode::recall
