#include "recall/token_selector.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "model/weights.h"
#include "recall/value_deviation.h"
#include "store/host_pages.h"

namespace rhapsode::recall {

using kernels::kPageTokens;

namespace {

// Attention is spread over neighbours before tokens are ranked: a word's tokens go together.
constexpr int kSmoothing = 4;
constexpr int kBoundaryTokens = 8;  // at each end of a passage

Ranking selectable(const BlendContext& context) {
  Ranking tokens;
  tokens.reserve(static_cast<size_t>(context.tokens()));
  for (int p = 0; p < static_cast<int>(context.passages.size()); ++p) {
    if (context.passages[p].exact) continue;
    for (int t = 0; t < context.passages[p].size(); ++t) tokens.push_back({p, t});
  }
  return tokens;
}

// By score, the largest first; of equal ones the first in reading order. The best `most` of them.
Ranking by_score(const Ranking& tokens, std::span<const double> scores, size_t most) {
  struct Scored {
    double score;
    uint32_t index;
  };
  std::vector<Scored> order(tokens.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = {scores[i], static_cast<uint32_t>(i)};
  const auto before = [](const Scored& a, const Scored& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  };
  if (most < order.size()) {
    std::nth_element(order.begin(), order.begin() + static_cast<int64_t>(most), order.end(), before);
    order.resize(most);
  }
  std::sort(order.begin(), order.end(), before);
  Ranking ranking;
  ranking.reserve(order.size());
  for (const Scored& scored : order) ranking.push_back(tokens[scored.index]);
  return ranking;
}

// The tokens nearest to the beginning (or end) of each passage, passages in turn.
Ranking by_distance(const BlendContext& context, bool from_end, size_t most) {
  int longest = 0;
  for (const BlendPassage& passage : context.passages) {
    if (!passage.exact) longest = std::max(longest, passage.size());
  }
  Ranking ranking;
  for (int distance = 0; distance < longest && ranking.size() < most; ++distance) {
    for (int p = 0; p < static_cast<int>(context.passages.size()) && ranking.size() < most; ++p) {
      const int size = context.passages[p].size();
      if (context.passages[p].exact || distance >= size) continue;
      ranking.push_back({p, from_end ? size - 1 - distance : distance});
    }
  }
  return ranking;
}

// The mean of each value and its neighbours. Neighbour by neighbour, so that many sums grow side by side.
std::vector<double> smoothed(std::span<const double> values) {
  const int count = static_cast<int>(values.size());
  std::vector<double> result(values.size());
  for (int reach = -kSmoothing; reach <= kSmoothing; ++reach) {
    const int begin = std::max(0, -reach);
    const int end = std::min(count, count - reach);
    for (int i = begin; i < end; ++i) result[i] += values[i + reach];
  }
  for (int i = 0; i < count; ++i) {
    result[i] /= std::min(count, i + kSmoothing + 1) - std::max(0, i - kSmoothing);
  }
  return result;
}

class FirstTokens final : public TokenSelector {
 public:
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override {
    return by_distance(context, false, most);
  }
};

class LastTokens final : public TokenSelector {
 public:
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override {
    return by_distance(context, true, most);
  }
};

class RandomTokens final : public TokenSelector {
 public:
  explicit RandomTokens(uint32_t seed) : seed_(seed) {}
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override {
    Ranking tokens = selectable(context);
    std::mt19937 random(seed_);
    // std::shuffle may differ between libraries; this does not.
    for (size_t i = tokens.size(); i > 1; --i) std::swap(tokens[i - 1], tokens[random() % i]);
    if (tokens.size() > most) tokens.resize(most);
    return tokens;
  }

 private:
  uint32_t seed_;
};

// Ends of passages in turn with the rarest tokens.
class BoundaryTokens final : public TokenSelector {
 public:
  explicit BoundaryTokens(TokenRarity rarity) : rarity_(std::move(rarity)) {}
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override {
    const Ranking tokens = selectable(context);
    std::vector<int32_t> ids;
    std::vector<double> closeness;
    for (const DocumentToken& token : tokens) {
      const BlendPassage& passage = context.passages[token.passage];
      ids.push_back(passage.tokens->tokens[token.token]);
      closeness.push_back(-std::min(token.token, passage.size() - 1 - token.token));
    }
    Ranking ends = by_score(tokens, closeness, tokens.size());
    std::erase_if(ends, [&](const DocumentToken& token) {
      const int last = context.passages[token.passage].size() - 1;
      return std::min(token.token, last - token.token) >= kBoundaryTokens;
    });
    RH_TRY(const std::vector<double> rarity, rarity_(ids));
    return merge_rankings(std::vector<Ranking>{ends, by_score(tokens, rarity, most)}, most);
  }

 private:
  TokenRarity rarity_;
};

// One pass of the question over the stored KV tells which tokens it attends to: the mean over layers, heads
// and question tokens.
class AttendedTokens final : public TokenSelector {
 public:
  explicit AttendedTokens(PassRunner& runner) : runner_(runner) {}
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override;
  SelectionCost cost() const override { return cost_; }

 private:
  Result<std::vector<std::vector<double>>> mass_by_passage(const BlendContext& context);
  PassRunner& runner_;
  SelectionCost cost_;
};

Result<std::vector<std::vector<double>>> AttendedTokens::mass_by_passage(const BlendContext& context) {
  const ReadReferences read = read_references(context);
  std::vector<std::vector<double>> mass;
  for (const BlendPassage& passage : context.passages) mass.emplace_back(passage.size());
  const int count = static_cast<int>(context.question.size());
  RH_TRY(std::vector<store::PagePin> own, take_frame_pages(runner_, count));
  for (int begin = 0; begin < count;) {
    const int end = std::min(count, begin + runner_.most_rows());
    PassBatch batch;
    batch.mass = true;
    batch.plan.sequences.push_back({0, end - begin, read.references, {}, {}});
    add_references(own, end, context.question_position, batch.plan.sequences.front().references);
    for (int token = begin; token < end; ++token) {
      batch.tokens.push_back(context.question[token]);
      batch.plan.positions.push_back(context.question_position + token);
      batch.plan.writes.push_back({own[token / kPageTokens].get(), token % kPageTokens});
    }
    RH_TRY(const AttentionMass sums, runner_.attention_mass(batch));
    for (size_t p = 0; p < mass.size(); ++p) {
      for (size_t token = 0; token < mass[p].size(); ++token) {
        const int place = read.places[p][token / kPageTokens];
        if (place >= 0) mass[p][token] += sums.front()[place * kPageTokens + token % kPageTokens];
      }
    }
    set_filled(own, end);
    begin = end;
  }
  cost_ = {static_cast<uint64_t>(count), static_cast<double>(count)};
  return mass;
}

Result<Ranking> AttendedTokens::rank(const BlendContext& context, size_t most) {
  RH_TRY(const auto mass, mass_by_passage(context));
  std::vector<double> scores;
  for (size_t p = 0; p < mass.size(); ++p) {
    if (context.passages[p].exact) continue;
    const std::vector<double> spread = smoothed(mass[p]);
    scores.insert(scores.end(), spread.begin(), spread.end());
  }
  return by_score(selectable(context), scores, most);
}

// Values of an early layer are computed afresh for every token, and compared with the stored ones.
class DeviatingTokens final : public TokenSelector {
 public:
  explicit DeviatingTokens(PassRunner& runner) : runner_(runner) {}
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override;
  SelectionCost cost() const override { return cost_; }

 private:
  PassRunner& runner_;
  SelectionCost cost_;
};

Result<Ranking> DeviatingTokens::rank(const BlendContext& context, size_t most) {
  Stream stream;
  stream.context = context.prefix;
  std::vector<int32_t> tokens;
  bool started = false;
  for (const BlendPassage& passage : context.passages) {
    if (passage.exact) {
      add_references(passage.pages, passage.size(), passage.shift, stream.context);
      continue;
    }
    if (!started) stream.position = passage.shift;
    started = true;
    tokens.insert(tokens.end(), passage.tokens->tokens.begin(), passage.tokens->tokens.end());
  }
  cost_ = {};
  if (tokens.empty()) return Ranking{};
  stream.tokens = tokens;
  RH_TRY(cost_.rows, feed(runner_, std::span(&stream, 1), model::PassGoal::kEarlyKv,
                          [](int, int, std::span<const float>) {}));
  // The layer compared is charged as a whole, though only its keys and values are made.
  const int layer = model::early_layer(runner_.architecture());
  cost_.charged = static_cast<double>(cost_.rows) * (layer + 1) / runner_.architecture().layers;
  std::vector<double> scores;
  int fresh = 0;
  RH_TRY(const store::HostPages fresh_pages, store::HostPages::reading(stream.pages));
  for (const BlendPassage& passage : context.passages) {
    if (passage.exact) continue;
    RH_TRY(const store::HostPages stored, store::HostPages::reading(passage.pages));
    for (int token = 0; token < passage.size(); ++token, ++fresh) {
      scores.push_back(value_deviation(runner_.kv_shape(), layer, *stored.pages()[token / kPageTokens],
                                       token % kPageTokens, *fresh_pages.pages()[fresh / kPageTokens],
                                       fresh % kPageTokens));
    }
  }
  return by_score(selectable(context), scores, most);
}

class Union final : public TokenSelector {
 public:
  Union(std::unique_ptr<TokenSelector> a, std::unique_ptr<TokenSelector> b)
      : a_(std::move(a)), b_(std::move(b)) {}
  using TokenSelector::rank;
  Result<Ranking> rank(const BlendContext& context, size_t most) override {
    RH_TRY(Ranking first, a_->rank(context, most));
    RH_TRY(Ranking second, b_->rank(context, most));
    return merge_rankings(std::vector<Ranking>{std::move(first), std::move(second)}, most);
  }
  SelectionCost cost() const override {
    const SelectionCost a = a_->cost(), b = b_->cost();
    return {a.rows + b.rows, a.charged + b.charged};
  }

 private:
  std::unique_ptr<TokenSelector> a_;
  std::unique_ptr<TokenSelector> b_;
};

}  // namespace

int BlendContext::tokens() const {
  int total = 0;
  for (const BlendPassage& passage : passages) total += passage.size();
  return total;
}

ReadReferences read_references(const BlendContext& context) {
  ReadReferences read;
  read.references = context.prefix;
  for (size_t p = 0; p < context.passages.size(); ++p) {
    const BlendPassage& passage = context.passages[p];
    std::vector<kernels::PageReference> pages;
    add_references(passage.pages, passage.size(), passage.shift, pages);
    if (!context.left_out.empty()) {
      for (const int32_t token : context.left_out[p]) {
        pages[token / kPageTokens].mask &= ~(1ull << (token % kPageTokens));
      }
    }
    read.places.emplace_back();
    for (const kernels::PageReference& page : pages) {
      read.places.back().push_back(page.mask == 0 ? -1 : static_cast<int>(read.references.size()));
      if (page.mask != 0) read.references.push_back(page);
    }
  }
  read.references.insert(read.references.end(), context.fresh.begin(), context.fresh.end());
  return read;
}

Ranking merge_rankings(std::span<const Ranking> rankings, size_t most) {
  // Which tokens of a passage were taken: rankings hold most of thousands, several times.
  std::vector<std::vector<bool>> taken;
  size_t count = 0;
  for (const Ranking& ranking : rankings) {
    count = std::max(count, ranking.size());
    for (const auto& [passage, token] : ranking) {
      const auto place = static_cast<size_t>(passage);
      if (taken.size() <= place) taken.resize(place + 1);
      if (taken[place].size() <= static_cast<size_t>(token)) taken[place].resize(token + 1);
    }
  }
  const auto is_taken = [&](const DocumentToken& token) { return taken[token.passage][token.token]; };
  Ranking merged;
  merged.reserve(std::min(most, count * rankings.size()));
  std::vector<size_t> next(rankings.size());
  for (bool more = true; more;) {
    more = false;
    for (size_t r = 0; r < rankings.size() && merged.size() < most; ++r) {
      while (next[r] < rankings[r].size() && is_taken(rankings[r][next[r]])) ++next[r];
      if (next[r] == rankings[r].size()) continue;
      const DocumentToken& token = rankings[r][next[r]++];
      taken[token.passage][token.token] = true;
      merged.push_back(token);
      more = true;
    }
  }
  return merged;
}

std::unique_ptr<TokenSelector> make_selector(BlendSelector kind, SelectorParts parts) {
  switch (kind) {
    case BlendSelector::kAttention:
      return std::make_unique<AttendedTokens>(*parts.runner);
    case BlendSelector::kFirst:
      return std::make_unique<FirstTokens>();
    case BlendSelector::kLast:
      return std::make_unique<LastTokens>();
    case BlendSelector::kAttentionLast:
      return std::make_unique<Union>(std::make_unique<AttendedTokens>(*parts.runner),
                                     std::make_unique<LastTokens>());
    case BlendSelector::kAttentionFirst:
      return std::make_unique<Union>(std::make_unique<AttendedTokens>(*parts.runner),
                                     std::make_unique<FirstTokens>());
    case BlendSelector::kDeviation:
      return std::make_unique<DeviatingTokens>(*parts.runner);
    case BlendSelector::kBoundary:
      return std::make_unique<BoundaryTokens>(std::move(parts.rarity));
    case BlendSelector::kRandom:
      return std::make_unique<RandomTokens>(parts.seed);
  }
  return std::make_unique<FirstTokens>();
}

}  // namespace rhapsode::recall
