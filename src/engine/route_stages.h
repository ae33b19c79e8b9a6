// One routing of a question, stage by stage: find, judge, chain, follow links (design: "Routing").
//
// Each stage takes the ranking of the one before it. Candidates' KV is loaded once and stays pinned for all
// stages; what has none is encoded while the stage's time lasts. Threads: one call at a time, inside the
// memory's gate.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/memory_impl.h"
#include "recall/evidence.h"
#include "recall/links.h"
#include "recall/question_likelihood.h"

namespace rhapsode {

class Memory::Impl::RouteStages {
 public:
  RouteStages(Impl& memory, const std::string& question, const RoutePlan& plan)
      : memory_(memory), question_(question), plan_(plan) {}
  Result<recall::Route> run(recall::RouteOptions options);

 private:
  struct LoadedKv {
    recall::PassageTokens tokens;
    std::vector<store::PagePin> pages;  // empty: not loaded
  };

  // Finds candidates by links and names, and ranks them all by the trained ranker, judged ones by what
  // judging says as well.
  Status evidence();
  Status judge();
  // Whether anything could be judged by this question.
  Result<bool> judge(std::span<recall::Ranked> ranked);
  Status chain();
  Status follow_links();
  // The passages' KV: what is stored at once, the rest in their order until so much time has passed.
  Status load(std::span<const int64_t> ids, int deadline_ms);
  recall::Candidate candidate(int64_t id) const;  // 0 tokens: not loaded
  Result<recall::LinkGraph> graph_of(size_t seeds, int steps) const;

  Impl& memory_;
  const std::string& question_;
  const RoutePlan& plan_;
  recall::Route route_;
  std::map<int64_t, LoadedKv> loaded_;
};

}  // namespace rhapsode
