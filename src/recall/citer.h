// The citer: which sentences an answer rests on, found by ablation.
//
// The end of the tail and the answer's tokens run again over the cached KV with one passage masked out, then
// with one sentence of it: what lowers the answer's log-likelihood most is its support (ContextCite, arXiv
// 2409.00729, with single ablations instead of a fitted surrogate). No document token is evaluated; masked
// passages keep their places, so nothing moves. Later tokens of a passage, and of the question, have seen the
// masked sentence: an approximation whose effect is measured in docs/results.md. Sentences are searched by
// halves: groups first, then the best group's members. Where several passages say the same, none of them
// alone is missed: then each is tried as the only one, and the one that suffices best is searched among
// masked others. Threads: one at a time. Cost: tail + (passages + about 10) x (8 + answer) rows, passages
// more for the second search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recall/pass_feeder.h"
#include "recall/prompt_frame.h"
#include "text/document.h"

namespace rhapsode::recall {

// A passage as it was read.
struct ReadPassage {
  std::span<const store::PagePin> pages;
  const PassageTokens* tokens = nullptr;
  std::string_view text;
  text::DocumentKind kind = text::DocumentKind::kPlain;
  int32_t shift = 0;
};

struct AnsweredPrompt {
  std::vector<kernels::PageReference> prefix;
  std::span<const ReadPassage> passages;
  std::span<const int32_t> tail;
  std::span<const int32_t> answer;  // without the end-of-turn token
  int32_t tail_position = 0;
};

struct Support {
  int passage = 0;   // index into AnsweredPrompt::passages
  size_t begin = 0;  // bytes of its text
  size_t end = 0;
  double passage_nats = 0;   // what the answer's log-likelihood loses without the passage
  double sentence_nats = 0;  // without the sentence
  bool alone = false;        // both measured with every other passage masked
};

struct CiteOptions {
  int most_citations = 3;
  double least_nats = 0.5;    // a passage that matters less is not cited
  double least_share = 0.15;  // of the best passage's loss
  int group = 4;              // sentences to a group in the first round
  // Tokens at the tail's end that run again with the answer; what stands before them keeps the KV that has
  // seen everything, once for all variants.
  int tail_tokens = 8;
};

struct Citing {
  std::vector<Support> supports;  // strongest first
  double answer_nats = 0;         // log-likelihood of the whole answer, nothing masked
  double closed_nats = 0;         // the same with every passage masked
  uint64_t probe_tokens = 0;
};

class Citer {
 public:
  explicit Citer(PassRunner& runner) : runner_(runner) {}
  Result<Citing> cite(AnsweredPrompt prompt, const CiteOptions& options = {});

 private:
  // Tokens [begin, end) of one passage's text, or the whole passage.
  struct Cut {
    int passage = 0;
    int begin = 0;
    int end = 0;
  };
  using Variant = std::vector<Cut>;
  // Every passage masked but one (-1: none).
  static Variant all_but(const AnsweredPrompt& prompt, int passage);
  // The answer's log-likelihood under each variant.
  Result<std::vector<double>> likelihoods(const AnsweredPrompt& prompt, std::span<const Variant> variants,
                                          Citing& citing);
  // The passage that serves the answer best as the only one; nothing when the memory does not matter to it.
  Status find_sufficient(const AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing);
  struct Search;
  Search begin_search(const AnsweredPrompt& prompt, Support& support) const;
  Status narrow(const AnsweredPrompt& prompt, std::span<Search> searches, int step, Citing& citing);
  // The sentence of every cited passage.
  Status find_sentences(const AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing);
  // Evaluates the tail but for its end, with everything visible: the context of all variants from here on.
  Status run_tail(AnsweredPrompt& prompt, const CiteOptions& options, Citing& citing);

  PassRunner& runner_;
  std::vector<store::PagePin> tail_pages_;
};

// For each byte range of the passage's text that begins at starts[i], the tokens [first, last) of the passage
// that lie in it; text_tokens' bytes decide.
std::vector<std::pair<int, int>> token_ranges(const text::Tokenizer& tokenizer, const PassageTokens& tokens,
                                              std::string_view text, std::span<const size_t> starts);

}  // namespace rhapsode::recall
