// Links: from passages to others that share a rare mention with them (design: "Links and hops").
//
// What passages mention is found without any model (text/mentions.h) when they are added, and kept in the
// catalog; it is found again when the extractor changes. A LinkGraph is the part of the graph around a few
// passages, of nothing but allowed passages: what a filter hides neither links nor counts. Mentions of more
// than `most_passages` allowed passages are hubs and link nothing; neither are mentions that more than 8
// times as many hold in all (old versions count there). A capitalised word links only to a passage that
// has it as its title. Ownership: values; the catalog outlives the calls. Threads: one at a time. Errors:
// the catalog's. Cost: one query a step, some ten milliseconds; no model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "index/passage_graph.h"
#include "recall/router.h"
#include "store/catalog.h"

namespace rhapsode::recall {

// Raised whenever text::find_mentions() or the use made of it here changes.
inline constexpr int kMentionsVersion = 1;

// Fills the mentions of a content's passages. The title is a mention of the first one.
void add_mentions(store::ContentRecord& record);
// Finds the mentions of contents that have none yet, or those of another version: for a writer, when it opens
// a memory. Commits as it goes: a kill costs little.
Status sync_mentions(store::Catalog& catalog);

struct LinkLimits {
  int most_passages = 8;
  int steps = 3;            // away from the seeds
  int most_reached = 1000;  // passages; the graph grows no further then
};

class LinkGraph {
 public:
  // `allowed`: ids ascending.
  static Result<LinkGraph> around(const store::Catalog& catalog, std::span<const int64_t> seeds,
                                  std::span<const int64_t> allowed, const LinkLimits& limits);

  const index::PassageGraph& graph() const { return graph_; }
  // Passages within one step of any of `from`, those of the earlier ones first, heaviest links first.
  std::vector<int64_t> neighbours(std::span<const int64_t> from) const;
  // From which of `from`, best first, a passage is reached, and through what.
  std::optional<Via> way_from(int64_t passage, std::span<const int64_t> from) const;
  // By personalised PageRank: the passages of `ranked` together with those that are reached from the first
  // `seeds` of them (only their ids and `via` are set). Scores are what flows to a passage, and of those of
  // `ranked` a share for their rank beside it, so that a question of one passage keeps its own
  // (docs/results.md).
  std::vector<Ranked> rank(std::span<const Ranked> ranked, int seeds, double follow) const;
  // The rarest mention that both hold, ties by lower id.
  std::optional<int64_t> shared_mention(int64_t a, int64_t b) const;

 private:
  // Takes in the mentions of `frontier`; returns the passages reached that are new.
  Result<std::vector<int64_t>> grow(const store::Catalog& catalog, std::span<const int64_t> frontier,
                                    std::span<const int64_t> allowed, int most_passages);
  std::optional<Via> way_to(int64_t passage, const std::map<int64_t, double>& scores) const;
  void take(std::span<const store::PassageMentionRow> holders, std::set<int64_t>& found);

  std::map<int64_t, std::vector<index::PassageMention>> holders_;  // by mention
  std::map<int64_t, std::vector<int64_t>> mentions_;               // by passage, ascending
  std::set<int64_t> looked_at_;                                    // mentions
  index::PassageGraph graph_;
};

}  // namespace rhapsode::recall
