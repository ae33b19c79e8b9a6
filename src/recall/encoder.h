// The encoder: passages to KV pages and routing states, many in one pass.
//
// Every passage is evaluated after the encoding prefix, causally and seeing nothing of its neighbours; its
// pages hold its keys in its own frame (positions from 0), so they can be read at any position later. The
// prefix's KV is made once and kept. Index-only encoding stops at the routing layer, about a fifth of the
// work. Shapes: states [chunks][embedding], the mean over 16 tokens of text (the last chunk of what is left);
// header and blank line make none. Threads: one at a time. Cost: the model's prefill of the passages' tokens.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "recall/pass_feeder.h"
#include "recall/prompt_frame.h"

namespace rhapsode::recall {

inline constexpr int kChunkTokens = 16;

struct Encoded {
  std::vector<store::PagePin> pages;  // empty when index-only
  std::vector<float> chunk_states;    // [chunks][embedding]
  int chunks = 0;
};

class Encoder {
 public:
  Encoder(PassRunner& runner, const PromptFrame& frame) : runner_(runner), frame_(frame) {}

  // The encoding prefix's pages: evaluated by the first call.
  Result<std::span<const store::PagePin>> prefix_pages();
  Result<std::vector<Encoded>> encode(std::span<const PassageTokens> passages, bool index_only);
  // The states of every token of a question, behind the prefix: [tokens][embedding].
  Result<std::vector<float>> question_states(std::span<const int32_t> tokens);

  // Rows that were run through the model so far, the prefix's included.
  uint64_t evaluated_tokens() const { return evaluated_tokens_; }

 private:
  // References to the prefix's pages, the context of everything that is encoded.
  std::vector<kernels::PageReference> prefix_context() const;

  PassRunner& runner_;
  const PromptFrame& frame_;
  std::vector<store::PagePin> prefix_;
  uint64_t evaluated_tokens_ = 0;
};

}  // namespace rhapsode::recall
