#include "engine/route_stages.h"

#include <algorithm>
#include <set>

#include "recall/chain.h"
#include "recall/judge.h"
#include "recall/time_preference.h"

namespace rhapsode {

namespace {

// Candidates whose KV is made at once, between two looks at the clock.
constexpr size_t kColdBatch = 4;
// Of the ranking, those whose neighbours may join a chain, and how many of them (evidence: experiment E).
constexpr size_t kExpanded = 5;
constexpr size_t kMostNeighbours = 40;
constexpr int kMostSeeds = 100;

std::vector<int64_t> ids_of(std::span<const recall::Ranked> ranked) {
  std::vector<int64_t> ids;
  for (const recall::Ranked& one : ranked) ids.push_back(one.passage);
  return ids;
}

}  // namespace

Status RoutePlan::check() const {
  if (judge.candidates < 0 || judge.deadline_ms < 0) {
    return make_error(ErrorKind::kInvalidArgument, "{} candidates to judge within {} ms have no meaning",
                      judge.candidates, judge.deadline_ms);
  }
  if (chain.passages < 0 || chain.candidates < 1 || chain.deadline_ms < 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a chain of {} passages out of {} candidates within {} ms has no meaning",
                      chain.passages, chain.candidates, chain.deadline_ms);
  }
  const bool sound = links.seeds >= 1 && links.seeds <= kMostSeeds && links.follow >= 0 && links.follow < 1 &&
                     links.most_passages >= 2;
  if (links.on && !sound) {
    return make_error(ErrorKind::kInvalidArgument,
                      "links from {} seeds, followed with a chance of {}, by mentions of {} passages have no "
                      "meaning",
                      links.seeds, links.follow, links.most_passages);
  }
  return {};
}

int RoutePlan::depth() const {
  int depth = judge.candidates;
  if (chains()) depth = std::max(depth, chain.candidates);
  if (links.on) depth = std::max(depth, links.seeds);
  if (evidence) depth = std::max(depth, recall::EvidenceLimits{}.found);
  return depth;
}

Result<RoutePlan> Memory::Impl::route_plan(RoutePlan plan, RankBy rank, bool all_signals) const {
  if (rank == RankBy::kAuto) {
    plan.evidence = evidence.has_value() && all_signals && plan.links.on;
    return plan;
  }
  plan.evidence = rank == RankBy::kEvidence;
  if (!plan.evidence) return plan;
  if (!plan.links.on) {
    return make_error(ErrorKind::kInvalidArgument,
                      "ranking by evidence follows links: leave out --no-links or --rank evidence");
  }
  if (!evidence) {
    return make_error(
        ErrorKind::kNotFound,
        "there is no evidence ranker beside the program or in the home folder: give one with --ranker");
  }
  return plan;
}

Result<recall::Route> Memory::Impl::route(const std::string& question,
                                          const recall::RouteOptions& route_options, const RoutePlan& plan) {
  return RouteStages(*this, question, plan).run(route_options);
}

Result<recall::Route> Memory::Impl::RouteStages::run(recall::RouteOptions options) {
  RH_TRY_STATUS(plan_.check());
  const int wanted = options.count;
  options.count = std::max(wanted, plan_.depth());
  RH_TRY(route_, memory_.router->route(*memory_.catalog, question_, options));
  memory_.keep_recall_samples();
  const uint64_t before = memory_.encoder->evaluated_tokens();
  const bool several = route_.ranked.size() > 1;
  if (plan_.evidence && several) {
    RH_TRY_STATUS(evidence());
    if (options.period) {
      RH_TRY_STATUS(recall::prefer_time(*memory_.catalog, *options.period, wanted, route_.ranked));
    }
  } else if (plan_.judge.candidates > 0 && several) {
    RH_TRY_STATUS(judge());
  }
  if (plan_.chains() && !route_.ranked.empty()) RH_TRY_STATUS(chain());
  if (plan_.links.on && !plan_.evidence && !route_.ranked.empty()) RH_TRY_STATUS(follow_links());
  route_.probe_tokens += static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  if (static_cast<int>(route_.ranked.size()) > wanted) route_.ranked.resize(wanted);
  return std::move(route_);
}

Status Memory::Impl::RouteStages::load(std::span<const int64_t> ids, int deadline_ms) {
  const int64_t begin = now_ns();
  std::vector<int64_t> unknown;
  for (const int64_t id : ids) {
    if (!loaded_.contains(id)) unknown.push_back(id);
  }
  RH_TRY(const std::vector<store::PassageRow> rows,
         memory_.catalog->passages(unknown, store::Selection::stored_ever()));
  std::vector<int64_t> warm, cold;
  for (const store::PassageRow& row : rows) {
    RH_TRY(const std::string text, memory_.catalog->passage_text(row.id));
    RH_TRY(loaded_[row.id].tokens, memory_.tokenizer->tokens(row.id, row.header, text));
    (row.has_kv || memory_.tier->holds(row.id) ? warm : cold).push_back(row.id);
  }
  const auto bring = [&](std::span<const int64_t> some) -> Status {
    std::vector<recall::KvWanted> wanted;
    for (const int64_t id : some) wanted.push_back({id, &loaded_[id].tokens});
    RH_TRY(auto pages, memory_.tier->load(*memory_.catalog, wanted, memory_.upkeep()));
    for (size_t n = 0; n < some.size(); ++n) loaded_[some[n]].pages = std::move(pages[n]);
    return {};
  };
  RH_TRY_STATUS(bring(warm));
  size_t next = 0;
  while (next < cold.size() && ms_between(begin, now_ns()) < deadline_ms) {
    const auto batch = std::span(cold).subspan(next, std::min(kColdBatch, cold.size() - next));
    RH_TRY_STATUS(bring(batch));
    next += batch.size();
  }
  route_.cold_candidates += static_cast<int>(cold.size() - next);
  return {};
}

recall::Candidate Memory::Impl::RouteStages::candidate(int64_t id) const {
  const auto found = loaded_.find(id);
  if (found == loaded_.end() || found->second.pages.empty()) return {};
  return {found->second.pages, static_cast<int>(found->second.tokens.tokens.size())};
}

Result<recall::LinkGraph> Memory::Impl::RouteStages::graph_of(size_t seeds, int steps) const {
  const auto first = std::span(route_.ranked).first(std::min(seeds, route_.ranked.size()));
  recall::LinkLimits limits;
  limits.most_passages = plan_.links.most_passages;
  limits.steps = steps;
  return recall::LinkGraph::around(*memory_.catalog, ids_of(first), route_.allowed, limits);
}

Status Memory::Impl::RouteStages::evidence() {
  RH_TRY(std::vector<recall::EvidenceCandidate> candidates,
         recall::gather_evidence(*memory_.catalog, *memory_.router, question_, route_));
  recall::rank_evidence(memory_.evidence->found, candidates);
  if (plan_.judge.candidates > 0) {
    std::vector<recall::Ranked> first;
    const size_t most = std::min(candidates.size(), static_cast<size_t>(plan_.judge.candidates));
    for (size_t i = 0; i < most; ++i) first.push_back(candidates[i].ranked);
    RH_TRY(const bool judged, judge(first));
    for (size_t i = 0; i < most; ++i) candidates[i].ranked.judged = first[i].judged;
    recall::add_judgement(candidates);
    if (judged) recall::rank_evidence(memory_.evidence->judged, candidates);
  }
  route_.ranked.clear();
  for (recall::EvidenceCandidate& candidate : candidates) {
    candidate.ranked.evidence.assign(candidate.row.begin(), candidate.row.end());
    route_.ranked.push_back(std::move(candidate.ranked));
  }
  return {};
}

Status Memory::Impl::RouteStages::judge() {
  RH_TRY(const bool judged, judge(route_.ranked));
  if (judged) recall::judge_again(route_.ranked);
  return {};
}

Result<bool> Memory::Impl::RouteStages::judge(std::span<recall::Ranked> ranked) {
  RH_TRY_STATUS(load(ids_of(ranked), plan_.judge.deadline_ms));
  std::vector<recall::Candidate> candidates;
  std::vector<size_t> places;
  for (size_t i = 0; i < ranked.size(); ++i) {
    const recall::Candidate one = candidate(ranked[i].passage);
    if (one.tokens == 0) continue;
    places.push_back(i);
    candidates.push_back(one);
  }
  recall::LikelihoodJudge judge(*memory_.passes, *memory_.encoder, *memory_.frame);
  RH_TRY(const std::vector<double> scores, judge.scores(question_, candidates));
  for (size_t n = 0; n < scores.size(); ++n) ranked[places[n]].judged = scores[n];
  route_.probe_tokens += static_cast<int>(judge.evaluated_tokens());
  return !scores.empty();
}

// The chain stands first, in its order; the others follow by how well each follows the chain's first passage.
Status Memory::Impl::RouteStages::chain() {
  const size_t most = std::min(route_.ranked.size(), static_cast<size_t>(plan_.chain.candidates));
  std::vector<recall::Ranked> pool(route_.ranked.begin(), route_.ranked.begin() + static_cast<int64_t>(most));
  recall::LinkGraph links;
  if (plan_.links.on) {
    RH_TRY(links, graph_of(kExpanded, 1));
    std::vector<int64_t> near = links.neighbours(ids_of(std::span(pool).first(std::min(kExpanded, most))));
    std::erase_if(near, [&](int64_t id) {
      return std::any_of(route_.ranked.begin(), route_.ranked.end(),
                         [&](const recall::Ranked& one) { return one.passage == id; });
    });
    RH_TRY(std::vector<recall::Ranked> more, memory_.router->score(*memory_.catalog, near, route_));
    std::sort(more.begin(), more.end(), recall::ranks_before);
    if (more.size() > kMostNeighbours) more.resize(kMostNeighbours);
    for (recall::Ranked& one : more) one.via = links.way_from(one.passage, ids_of(pool));
    pool.insert(pool.end(), more.begin(), more.end());
  }
  RH_TRY_STATUS(load(ids_of(pool), plan_.chain.deadline_ms));
  std::erase_if(pool, [&](const recall::Ranked& one) { return candidate(one.passage).tokens == 0; });
  // A chain begins with the best passage or not at all.
  if (pool.empty() || pool.front().passage != route_.ranked.front().passage) return {};
  std::vector<double> found;
  for (const recall::Ranked& one : pool) found.push_back(one.latent_z + one.keywords_z);
  const recall::Moments prior = recall::moments_of(found);
  std::vector<recall::ChainCandidate> candidates;
  for (size_t i = 0; i < pool.size(); ++i) {
    recall::ChainCandidate one{candidate(pool[i].passage), prior.z(found[i]), {}};
    for (size_t j = 0; j < pool.size(); ++j) {
      if (i != j && links.shared_mention(pool[i].passage, pool[j].passage)) one.linked.push_back(j);
    }
    candidates.push_back(std::move(one));
  }
  recall::EvidenceChain chain(*memory_.passes, *memory_.encoder, *memory_.frame);
  RH_TRY(const recall::Chain built,
         chain.build(question_, candidates, 0, {plan_.chain.passages, plan_.chain.cost}));
  route_.probe_tokens += static_cast<int>(chain.evaluated_tokens());
  for (size_t n = 0; n < built.gains.size(); ++n) pool[built.chosen[n]].chained = built.gains[n];
  route_.ranked = recall::chain_first(route_.ranked, pool, built);
  return {};
}

Status Memory::Impl::RouteStages::follow_links() {
  RH_TRY(const recall::LinkGraph links, graph_of(plan_.links.seeds, recall::LinkLimits{}.steps));
  std::vector<recall::Ranked> ranked = links.rank(route_.ranked, plan_.links.seeds, plan_.links.follow);
  const std::vector<int64_t> before = ids_of(route_.ranked);
  const std::set<int64_t> known(before.begin(), before.end());
  std::vector<int64_t> reached;
  for (const recall::Ranked& one : ranked) {
    if (!known.contains(one.passage)) reached.push_back(one.passage);
  }
  RH_TRY(const std::vector<recall::Ranked> scored, memory_.router->score(*memory_.catalog, reached, route_));
  size_t next = 0;
  for (recall::Ranked& one : ranked) {
    if (next == scored.size() || scored[next].passage != one.passage) continue;
    recall::Ranked full = scored[next++];
    full.score = one.score;
    full.via = one.via;
    one = full;
  }
  route_.ranked = std::move(ranked);
  return {};
}

}  // namespace rhapsode
