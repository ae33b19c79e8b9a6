// How likely the question is behind passages: what judging and chaining measure.
//
// The question's tokens run once over stored KV; no token of a passage is evaluated. Passages stand one after
// another behind the encoding prefix (positions as if they were one text), the question last: the first one
// is exact, those behind it have not seen what stands in front of them. Ownership: pages are pinned by the
// caller during the call. Threads: one at a time. Cost: question tokens x readings rows with logits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/encoder.h"

namespace rhapsode::recall {

struct Candidate {
  std::span<const store::PagePin> pages;
  int tokens = 0;
};

using Reading = std::vector<Candidate>;  // in the order in which they are read; may be empty

class QuestionLikelihood {
 public:
  QuestionLikelihood(PassRunner& runner, Encoder& encoder, const PromptFrame& frame)
      : runner_(runner), encoder_(encoder), frame_(frame) {}
  // Log-likelihood of the question in nats behind each reading; none for a question without tokens that
  // count.
  Result<std::vector<double>> behind(const std::string& question, std::span<const Reading> readings);
  uint64_t evaluated_tokens() const { return evaluated_; }  // by all calls

 private:
  PassRunner& runner_;
  Encoder& encoder_;
  const PromptFrame& frame_;
  uint64_t evaluated_ = 0;
};

// Of the tokens of PromptFrame::routing_question(), those that speak of the question: the first two
// ("Question", ":") stand before every question, and the line feed ends it.
inline std::pair<size_t, size_t> question_span(size_t tokens) {
  const size_t first = tokens < 2 ? tokens : 2;
  return {first, tokens > first ? tokens - 1 : first};
}

}  // namespace rhapsode::recall
