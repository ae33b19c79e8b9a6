// The graph of passages that share rare mentions, and personalised PageRank over it.
//
// Two passages are linked by each mention that both hold, with the weight 1 / (number of passages that hold
// it); mentions of more passages than `most_passages` are hubs and link nothing. PageRank starts from the
// passages a ranking puts first (weight 1 / rank): what they link to, and what that links to, gathers score.
// Nothing here knows what a mention is: it is a number. Ownership: values. Threads: const functions from any.
// Determinism: results depend on the passages, mentions and seeds alone, not on their order. Cost: building
// O(mentions x most_passages) edges; ranking O(passages + rounds x links reached).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rhapsode::index {

struct GraphOptions {
  int most_passages = 8;  // of a mention that links
  int most_links = 40;    // of a passage: the heaviest
};

struct PassageMention {
  int64_t passage = 0;
  int64_t mention = 0;
  bool weak = false;  // links to those that hold it otherwise, not to others that hold it weakly
};

struct Link {
  int64_t passage = 0;
  float weight = 0.0f;
};

struct PageRankOptions {
  double follow = 0.5;  // chance of following a link; else back to a seed
  int rounds = 20;
};

class PassageGraph {
 public:
  // Repeated pairs count once, weakly only if all of them are weak.
  static PassageGraph build(std::vector<PassageMention> mentions, const GraphOptions& options = {});

  size_t passages() const { return ids_.size(); }
  size_t links() const { return links_.size(); }
  // Heaviest first, ties by lower id; none for a passage without links.
  std::vector<Link> links_of(int64_t passage) const;

  // Every passage that can be reached from the seeds, best first, ties by lower id; the seeds' weights are
  // 1 / rank, in the order given. Seeds without links keep what they start with. Scores sum to at most 1.
  std::vector<std::pair<int64_t, double>> rank(std::span<const int64_t> seeds,
                                               const PageRankOptions& options = {}) const;

 private:
  struct Neighbour {
    uint32_t passage = 0;  // place in ids_
    float weight = 0.0f;   // of all links of the one it belongs to: they sum to 1
    float raw = 0.0f;
  };
  std::vector<std::pair<size_t, double>> walk(std::span<const std::pair<size_t, double>> start,
                                              const PageRankOptions& options) const;
  // ids_.size() when it has no links.
  size_t place_of(int64_t passage) const;

  std::vector<int64_t> ids_;  // ascending
  std::vector<size_t> begins_;
  std::vector<Neighbour> links_;
};

}  // namespace rhapsode::index
