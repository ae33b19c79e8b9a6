// The router, stage 1 (find): a question to ranked passages of the whole memory.
//
// Two signals (design: "Find"): *latent*, the IDF-weighted late interaction of the question's whitened states
// with the passages' sign codes (finder.h: all of them, or those an index proposes); *keywords*, BM25 over
// the catalog's text index. They are fused by z-scores: mean and deviation of each over a fixed sample of
// passages, the union of each signal's best scored exactly by both. Filters come first: only passages of the
// selection are looked at. Threads: one at a time. Cost: the question's tokens through a fifth of the model,
// one scan of the codes, two text queries.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "index/code_scan.h"
#include "index/whitening.h"
#include "recall/encoder.h"
#include "recall/finder.h"
#include "recall/moments.h"
#include "recall/question_likelihood.h"
#include "store/catalog.h"
#include "text/time_expressions.h"

namespace rhapsode::recall {

// The passage and the mention through which another one was reached.
struct Via {
  int64_t passage = 0;
  int64_t mention = 0;
};

struct Ranked {
  int64_t passage = 0;
  double score = 0;  // by which they are ranked
  double latent = 0;
  double keywords = 0;
  double latent_z = 0;
  double keywords_z = 0;
  std::optional<double> judged;                  // by a judge (judge.h); then `score` holds both
  std::optional<double> chained = std::nullopt;  // by a chain (chain.h)
  std::optional<Via> via = std::nullopt;         // by links (links.h)
  std::vector<float> evidence = {};              // what a trained ranker weighed (evidence.h)
};

// The order of every ranking: best first, ties by lower id.
inline bool ranks_before(const Ranked& a, const Ranked& b) {
  return a.score != b.score ? a.score > b.score : a.passage < b.passage;
}

// The weight of a term that `count` of `passages` passages hold (Robertson and Sparck Jones, as BM25's).
double inverse_frequency(double passages, double count);

struct RouteOptions {
  store::Selection selection;
  int count = 5;
  bool latent = true;
  bool keywords = true;
  std::optional<text::DatePeriod> period;  // passages whose statements hold then are preferred
};

struct Route {
  std::vector<Ranked> ranked;      // best first
  std::vector<std::string> terms;  // of the question: for abstaining (abstention.h)
  int probe_tokens = 0;            // run through the model
  int cold_candidates = 0;         // neither judged nor chained, as there was no time to make their KV

  // What it takes to score further passages as these were.
  std::vector<int64_t> allowed;  // ascending: all of the selection
  index::QuestionVectors vectors;
  Moments latent_moments;
  Moments keyword_moments;
  bool latent = true;
  bool keywords = true;
};

class Router {
 public:
  Router(Encoder& encoder, const PromptFrame& frame, const index::Whitening& whitening, Finder& finder)
      : encoder_(encoder), frame_(frame), whitening_(whitening), finder_(finder) {}

  Result<Route> route(const store::Catalog& catalog, const std::string& question,
                      const RouteOptions& options);
  // Scores other passages as those of the route were, in their order.
  Result<std::vector<Ranked>> score(const store::Catalog& catalog, std::span<const int64_t> ids,
                                    const Route& route);
  // The question as the codes are scanned with it: whitened states of its tokens and their IDF.
  Result<index::QuestionVectors> question_vectors(const store::Catalog& catalog, const std::string& question,
                                                  Route& route);

  // Whitened states of a sentence read as a question, what an index is trained on: [tokens][dimensions].
  Result<std::vector<float>> sentence_states(const std::string& sentence);

 private:
  Result<std::vector<Ranked>> score_with(const store::Catalog& catalog, std::span<const int64_t> ids,
                                         const Route& route, LatentScores& latent);
  Encoder& encoder_;
  const PromptFrame& frame_;
  const index::Whitening& whitening_;
  Finder& finder_;
};

}  // namespace rhapsode::recall
