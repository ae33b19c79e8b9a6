// Sampler: chooses the next token of one sequence from a row of logits, or from the largest of them.
//
// Order: repetition penalty, then, unless the temperature is 0, top-k, top-p, min-p, temperature and a draw,
// as llama.cpp has it, with sums in double precision and ties by the lower id (ranked_tokens.h). A grammar is
// checked on the chosen token only; all tokens are filtered only when that one is refused. The same seed,
// options and logits give the same tokens, whether the row comes whole or as candidates (candidates.h).
// Ownership: one a sequence; keeps the tokenizer alive. Threads: one at a time. Errors: Result values; after
// an error the state is as before the call, except that a draw may have been spent.
// Cost for 152k tokens: greedy 0.06 ms, drawing 1-3 ms, less with top-k; top-p alone sorts everything when
// the distribution is flat (about 10 ms), and so does a grammar that refuses the chosen token. Of 256
// candidates: greedy nothing, drawing a few microseconds.
#pragma once

#include <llama.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "rhapsode/options.h"
#include "rhapsode/result.h"
#include "text/candidates.h"
#include "text/ranked_tokens.h"
#include "text/tokenizer.h"

namespace rhapsode::text {

class Sampler {
 public:
  static Result<std::unique_ptr<Sampler>> make(const Tokenizer& tokenizer, const SamplingOptions& options);

  // The next token; `logits` has one entry a token of the vocabulary, and may have more for padding. Does not
  // accept it.
  Result<int32_t> sample(std::span<const float> logits);

  // The same token from the row's candidates; nothing, without a change, where they do not decide.
  Result<std::optional<int32_t>> sample(const Candidates& candidates);
  // Whether so many candidates may decide at all under these options.
  bool takes_candidates(size_t count) const;

  // The sequence goes on with this token. Refused, without a change, if a grammar forbids it here.
  Status accept(int32_t token);

  // Tokens of the prompt: they count for the repetition penalty, not for the grammar.
  void observe(std::span<const int32_t> tokens);

  // For a fork of the sequence: same history, same grammar state, same future draws.
  std::unique_ptr<Sampler> clone() const;

  // Whether a grammar is complete here, so that the text may end; true without a grammar.
  bool may_end() const;

 private:
  struct SamplerDeleter {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
  };
  using LlamaSampler = std::unique_ptr<llama_sampler, SamplerDeleter>;

  Sampler(std::shared_ptr<const Tokenizer> tokenizer, const SamplingOptions& options);
  Status make_grammar();
  std::span<const float> penalised_row(std::span<const float> logits);
  // `rank` puts the row's tokens into ranked_.
  std::optional<int32_t> choose(const std::function<void()>& rank);
  std::optional<int32_t> best_allowed();
  bool grammar_allows(int32_t token) const;
  void remember(int32_t token);

  std::shared_ptr<const Tokenizer> tokenizer_;
  SamplingOptions options_;
  LlamaSampler grammar_;  // null without a grammar
  std::deque<int32_t> window_;
  std::unordered_map<int32_t, int> counts_;  // of the tokens in the window
  std::mt19937 random_;
  std::vector<float> penalised_;
  RankedTokens ranked_;
  std::vector<llama_token_data> group_;  // of tokens that the grammar is asked about
};

}  // namespace rhapsode::text
