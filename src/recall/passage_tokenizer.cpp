#include "recall/passage_tokenizer.h"

#include <xxhash.h>

#include <vector>

#include "base/parallel.h"

namespace rhapsode::recall {

namespace {

uint64_t hash_of(std::string_view header, std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), XXH3_64bits(header.data(), header.size()));
}

}  // namespace

const PassageTokens* PassageTokenizer::find(int64_t passage, uint64_t hash) const {
  const auto found = kept_.find(passage);
  return found != kept_.end() && found->second.hash == hash ? &found->second.tokens : nullptr;
}

void PassageTokenizer::keep(int64_t passage, uint64_t hash, PassageTokens tokens) {
  // Whatever is asked for again is soon back.
  if (kept_.size() >= kMostKept) kept_.clear();
  kept_[passage] = {hash, std::move(tokens)};
}

Status PassageTokenizer::prepare(std::span<const Passage> passages, int threads) {
  struct Missing {
    const Passage* passage;
    uint64_t hash;
    Result<PassageTokens> tokens;
  };
  std::vector<Missing> missing;
  for (const Passage& passage : passages) {
    const uint64_t hash = hash_of(passage.header, passage.text);
    if (!find(passage.id, hash)) missing.push_back({&passage, hash, PassageTokens()});
  }
  for_each_on_threads(missing.size(), threads, [&](size_t i) {
    missing[i].tokens = frame_.passage(missing[i].passage->header, missing[i].passage->text);
  });
  for (Missing& made : missing) {
    RH_TRY_STATUS(made.tokens.ok() ? Status() : Status(made.tokens.error()));
    keep(made.passage->id, made.hash, std::move(*made.tokens));
  }
  return {};
}

Result<PassageTokens> PassageTokenizer::tokens(int64_t passage, std::string_view header,
                                               std::string_view text) {
  const uint64_t hash = hash_of(header, text);
  if (const PassageTokens* kept = find(passage, hash)) return *kept;
  RH_TRY(PassageTokens made, frame_.passage(header, text));
  keep(passage, hash, made);
  return made;
}

}  // namespace rhapsode::recall
