#include "recall/passage_tokenizer.h"

#include <xxhash.h>

namespace rhapsode::recall {

Result<PassageTokens> PassageTokenizer::tokens(int64_t passage, std::string_view header,
                                               std::string_view text) {
  const uint64_t of_header = XXH3_64bits(header.data(), header.size());
  const uint64_t hash = XXH3_64bits_withSeed(text.data(), text.size(), of_header);
  const auto found = kept_.find(passage);
  if (found != kept_.end() && found->second.hash == hash) return found->second.tokens;
  RH_TRY(PassageTokens made, frame_.passage(header, text));
  // Whatever is asked for again is soon back.
  if (kept_.size() >= kMostKept) kept_.clear();
  kept_[passage] = {hash, made};
  return made;
}

}  // namespace rhapsode::recall
