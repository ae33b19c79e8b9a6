// Tokens of passages that are read again and again, made once.
//
// Tokenising is what is left of reading stored KV that lies ready: 27,000 tokens take longer than a
// question's pass over them on a GPU. Kept by passage number, and only as long as header and text are the
// same bytes (by a hash of 64 bits): numbers may come again. Ownership: refers to the frame, which outlives
// it; returns copies. Threads: one at a time. Errors: the tokenizer's. Cost: a hash of the text; memory for
// kMostKept passages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "recall/prompt_frame.h"

namespace rhapsode::recall {

class PassageTokenizer {
 public:
  static constexpr size_t kMostKept = 16384;  // some 2 KB each

  explicit PassageTokenizer(const PromptFrame& frame) : frame_(frame) {}

  struct Passage {
    int64_t id = 0;
    std::string_view header;
    std::string_view text;
  };
  // Makes the tokens of all that are not kept, on up to `threads` threads: tokens() then finds them.
  Status prepare(std::span<const Passage> passages, int threads);
  // PromptFrame::passage() of these.
  Result<PassageTokens> tokens(int64_t passage, std::string_view header, std::string_view text);
  size_t kept() const { return kept_.size(); }

 private:
  const PassageTokens* find(int64_t passage, uint64_t hash) const;
  void keep(int64_t passage, uint64_t hash, PassageTokens tokens);

  struct Kept {
    uint64_t hash = 0;
    PassageTokens tokens;
  };
  const PromptFrame& frame_;
  std::unordered_map<int64_t, Kept> kept_;
};

}  // namespace rhapsode::recall
