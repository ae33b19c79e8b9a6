// Watches an answer while it is generated: when passages are to be looked for again, and how sure the model
// was.
//
// pauses_before() is asked on the engine's thread before each token; the rest is for whoever asked the
// question, while the request is paused or over. A token is only asked about once: behind a new context its
// row comes again. Cost: a pass over the row where entropies are wanted, else of the last sentence.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "rhapsode/answer.h"
#include "rhapsode/memory_options.h"

namespace rhapsode {

class AnswerWatch {
 public:
  // With attention, it is looked at after so many tokens.
  static constexpr int kAttentionTokens = 8;

  AnswerWatch(const RerouteOptions& options, bool keeps_entropies)
      : options_(options), keeps_entropies_(keeps_entropies) {}

  // Before the token drawn from `row`, behind `tokens` generated ones that end `text`.
  bool pauses_before(int tokens, std::string_view text, std::span<const float> row);

  // Why it paused. With kAttention, only to measure it: attention_fell() then decides.
  RouteCause cause() const { return cause_; }
  double entropy() const { return entropy_; }  // before the pause
  // Takes the share of attention on memory over the tokens since the last look; its part of the highest.
  double attention_part(double share);
  bool attention_fell(double part) const { return part < options_.attention; }
  // Passages are looked for.
  void routed();
  int routings() const { return routings_; }

  // Of each token generated so far; 0 where it could not be told.
  const std::vector<double>& entropies() const { return entropies_; }

 private:
  bool due(int tokens, std::string_view text);

  RerouteOptions options_;
  bool keeps_entropies_;
  std::vector<double> entropies_;
  RouteCause cause_ = RouteCause::kTokens;
  double entropy_ = 0;
  double highest_ = 0;
  int asked_ = 0;      // tokens, at the last question
  int routed_at_ = 0;  // tokens
  int looked_at_ = 0;  // tokens, when attention was looked at
  int routings_ = 0;
  size_t sentence_bytes_ = 0;  // of the text whose last sentence's end was seen
};

}  // namespace rhapsode
