// Token selectors: which tokens of reused passages are worth evaluating again (policy `blend`).
//
// A passage's stored keys and values have not seen the passages in front of it. Blending evaluates a share of
// its tokens again where they stand in this prompt; a selector says which first. Evidence on what is left of
// the divergence from full attention at 15 %: attention 0.22, deviation 0.28, first 0.34, random 0.39, none
// 0.42 nats (docs/results.md). Shapes: a ranking holds DocumentTokens, each at most once, best first, none of
// an exact passage. Ownership: selectors keep references to the runner. Threads: one at a time. Cost: stated
// by cost() after rank(), as rows run and as what they amount to in whole passes through the model.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "recall/pass_feeder.h"
#include "recall/prompt_frame.h"
#include "rhapsode/memory_options.h"

namespace rhapsode::recall {

// A passage as a prompt reads it: sequentially, its frame's 0 at `shift`.
struct BlendPassage {
  std::span<const store::PagePin> pages;
  const PassageTokens* tokens = nullptr;
  int32_t shift = 0;
  bool exact = false;  // its KV is that of full attention already; only leading passages may be

  int size() const { return static_cast<int>(tokens->tokens.size()); }
};

struct BlendContext {
  std::vector<kernels::PageReference> prefix;  // the encoding prefix
  std::span<const BlendPassage> passages;      // in reading order
  // Of each passage, tokens that were evaluated again already, ascending; empty: none of any. Their keys lie
  // in the pages of `fresh`.
  std::span<const std::vector<int32_t>> left_out;
  std::vector<kernels::PageReference> fresh;
  std::span<const int32_t> question;  // its tokens
  int32_t question_position = 0;

  int tokens() const;  // of all passages
};

// What is attended to: the prefix, the passages' pages less what is left out, fresh pages.
struct ReadReferences {
  std::vector<kernels::PageReference> references;
  std::vector<std::vector<int>> places;  // of each passage's pages in `references`; -1: nothing of it is seen
};
ReadReferences read_references(const BlendContext& context);

struct DocumentToken {
  int passage = 0;
  int token = 0;  // of the passage, header included
  auto operator<=>(const DocumentToken&) const = default;
};
using Ranking = std::vector<DocumentToken>;

struct SelectionCost {
  uint64_t rows = 0;   // run through some layers
  double charged = 0;  // the same in rows through all of them
};

class TokenSelector {
 public:
  virtual ~TokenSelector() = default;
  // The first `most` tokens of the ranking, or all there are.
  virtual Result<Ranking> rank(const BlendContext& context, size_t most) = 0;
  Result<Ranking> rank(const BlendContext& context) {
    return rank(context, std::numeric_limits<size_t>::max());
  }
  virtual SelectionCost cost() const { return {}; }  // of the last rank()
};

// How rare tokens are in the memory: a number each, larger for rarer ones.
using TokenRarity = std::function<Result<std::vector<double>>(std::span<const int32_t> tokens)>;

struct SelectorParts {
  PassRunner* runner = nullptr;
  TokenRarity rarity;  // of kBoundary
  uint32_t seed = 0;   // of kRandom
};
std::unique_ptr<TokenSelector> make_selector(BlendSelector kind, SelectorParts parts);

// Takes from each ranking in turn, so that any first n of the union hold about n / rankings of each; the
// first `most` of it.
Ranking merge_rankings(std::span<const Ranking> rankings, size_t most = std::numeric_limits<size_t>::max());

}  // namespace rhapsode::recall
