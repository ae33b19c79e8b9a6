// ControlTokens: finds the names of a vocabulary's control tokens ("<|im_end|>") in the trusted stretches of
// a text.
//
// In libllama's own order: the longest name first, each searched from left to right in what is still text.
// Tokens that are "user defined" are not searched here: libllama finds them itself, in any text. Ownership: a
// value. Threads: immutable. Errors: none. Cost: one search of the trusted text a control token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace rhapsode::text {

struct TextRange {
  size_t begin;
  size_t end;
};

struct ControlToken {
  std::string name;
  int32_t id;
  bool strips_left;   // swallows the white space before it
  bool strips_right;  // and after it
};

struct ControlMatch {
  TextRange where;
  const ControlToken* token;
};

class ControlTokens {
 public:
  explicit ControlTokens(const llama_vocab* vocab);

  // The matches from left to right; none overlap. `trusted` is ordered and does not overlap either.
  std::vector<ControlMatch> find(std::string_view text, std::vector<TextRange> trusted) const;

 private:
  std::vector<ControlToken> tokens_;
};

}  // namespace rhapsode::text
