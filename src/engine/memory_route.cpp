// Routing of a memory: finding, then judging over stored KV.
#include <algorithm>

#include "engine/memory_impl.h"
#include "recall/judge.h"

namespace rhapsode {

namespace {

// Candidates whose KV is made at once, between two looks at the clock.
constexpr size_t kColdBatch = 4;

}  // namespace

Result<recall::Route> Memory::Impl::route(const std::string& question, recall::RouteOptions options,
                                          const JudgeOptions& judge) {
  if (judge.candidates < 0 || judge.deadline_ms < 0) {
    return make_error(ErrorKind::kInvalidArgument, "{} candidates to judge within {} ms have no meaning",
                      judge.candidates, judge.deadline_ms);
  }
  const int wanted = options.count;
  options.count = std::max(options.count, judge.candidates);
  RH_TRY(recall::Route found, router->route(*catalog, question, options));
  keep_recall_samples();
  if (judge.candidates > 0 && found.ranked.size() > 1) {
    if (static_cast<int>(found.ranked.size()) > options.count) found.ranked.resize(options.count);
    RH_TRY_STATUS(judge_candidates(question, judge, found));
  }
  if (static_cast<int>(found.ranked.size()) > wanted) found.ranked.resize(wanted);
  return found;
}

Status Memory::Impl::judge_candidates(const std::string& question, const JudgeOptions& options,
                                      recall::Route& route) {
  const int64_t begin = now_ns();
  std::vector<int64_t> ids;
  for (const recall::Ranked& ranked : route.ranked) ids.push_back(ranked.passage);
  RH_TRY(const std::vector<store::PassageRow> rows, catalog->passages(ids, {}));
  std::vector<recall::PassageTokens> tokens(ids.size());
  std::vector<size_t> warm, cold;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.id == ids[i]; });
    if (row == rows.end()) continue;
    RH_TRY(const std::string text, catalog->passage_text(ids[i]));
    RH_TRY(tokens[i], frame->passage(row->header, text));
    (row->has_kv || tier->holds(ids[i]) ? warm : cold).push_back(i);
  }
  std::vector<std::vector<store::PagePin>> pages(ids.size());
  const auto load = [&](std::span<const size_t> some) -> Status {
    std::vector<recall::KvWanted> wanted;
    for (const size_t i : some) wanted.push_back({ids[i], &tokens[i]});
    RH_TRY(auto loaded, tier->load(*catalog, wanted, upkeep()));
    for (size_t n = 0; n < some.size(); ++n) pages[some[n]] = std::move(loaded[n]);
    return {};
  };
  const uint64_t before = encoder->evaluated_tokens();
  RH_TRY_STATUS(load(warm));
  // The best ones found first.
  for (size_t next = 0; next < cold.size() && ms_between(begin, now_ns()) < options.deadline_ms;) {
    const auto batch = std::span(cold).subspan(next, std::min(kColdBatch, cold.size() - next));
    RH_TRY_STATUS(load(batch));
    next += batch.size();
  }
  std::vector<recall::Candidate> candidates;
  std::vector<size_t> judged;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (pages[i].empty()) continue;
    judged.push_back(i);
    candidates.push_back({pages[i], static_cast<int>(tokens[i].tokens.size())});
  }
  recall::LikelihoodJudge judge(*passes, *encoder, *frame);
  RH_TRY(const std::vector<double> scores, judge.scores(question, candidates));
  for (size_t n = 0; n < scores.size(); ++n) route.ranked[judged[n]].judged = scores[n];
  if (!scores.empty()) recall::judge_again(route.ranked);
  route.probe_tokens += static_cast<int>(encoder->evaluated_tokens() - before + judge.evaluated_tokens());
  return {};
}

}  // namespace rhapsode
