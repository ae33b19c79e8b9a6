#include "text/control_tokens.h"

#include <llama.h>

#include <algorithm>

namespace rhapsode::text {

ControlTokens::ControlTokens(const llama_vocab* vocab) {
  for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    const int attributes = llama_vocab_get_attr(vocab, id);
    if (!(attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN))) continue;
    tokens_.push_back({llama_vocab_get_text(vocab, id), id, (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0,
                       (attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0});
  }
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const ControlToken& a, const ControlToken& b) {
    return a.name.size() > b.name.size();
  });
}

std::vector<ControlMatch> ControlTokens::find(std::string_view text, std::vector<TextRange> trusted) const {
  std::vector<ControlMatch> matches;
  for (const ControlToken& token : tokens_) {
    std::vector<TextRange> rest;
    for (TextRange range : trusted) {
      const std::string_view head = text.substr(0, range.end);
      for (size_t at; (at = head.find(token.name, range.begin)) != std::string_view::npos;) {
        matches.push_back({{at, at + token.name.size()}, &token});
        if (range.begin < at) rest.push_back({range.begin, at});
        range.begin = at + token.name.size();
      }
      if (range.begin < range.end) rest.push_back(range);
    }
    trusted = std::move(rest);
  }
  std::sort(matches.begin(), matches.end(),
            [](const ControlMatch& a, const ControlMatch& b) { return a.where.begin < b.where.begin; });
  return matches;
}

}  // namespace rhapsode::text
