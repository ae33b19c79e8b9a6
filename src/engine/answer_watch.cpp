#include "engine/answer_watch.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "text/logits.h"
#include "text/passage.h"

namespace rhapsode {

namespace {

constexpr size_t kMostSentenceBytes = 600;  // looked back on

// Bytes up to the last that is not white space.
size_t length_of(std::string_view text) {
  return text.find_last_not_of(" \t\r\n") + 1;
}

// Whether a sentence would begin here if the text went on: the rules of citations decide.
bool ends_sentence(std::string_view text) {
  if (length_of(text) == 0 || std::isalnum(static_cast<unsigned char>(text.back())) != 0) return false;
  std::string probe(text.substr(text.size() - std::min(text.size(), kMostSentenceBytes)));
  const size_t end = probe.size();
  probe += " And";
  return text::sentence_starts(probe, text::DocumentKind::kPlain).back() >= end;
}

}  // namespace

bool AnswerWatch::pauses_before(int tokens, std::string_view text, std::span<const float> row) {
  if (keeps_entropies_ || options_.entropy > 0) {
    // Broken logits are the sampler's to refuse.
    const Result<double> entropy = text::entropy_of(row);
    entropy_ = entropy.ok() ? *entropy : 0;
    entropies_.resize(static_cast<size_t>(tokens));
    entropies_.push_back(entropy_);
  }
  // Before the first token nothing has been said that the question does not say.
  if (tokens == 0 || tokens == asked_ || routings_ >= options_.most) return false;
  asked_ = tokens;
  return due(tokens, text);
}

bool AnswerWatch::due(int tokens, std::string_view text) {
  const auto because = [&](RouteCause cause) {
    cause_ = cause;
    return true;
  };
  // White space behind a sentence does not end it again.
  if (options_.sentences && length_of(text) > sentence_bytes_ && ends_sentence(text)) {
    sentence_bytes_ = length_of(text);
    return because(RouteCause::kSentence);
  }
  if (options_.entropy > 0 && entropy_ > options_.entropy) return because(RouteCause::kEntropy);
  if (options_.every_tokens > 0 && tokens - routed_at_ >= options_.every_tokens) {
    return because(RouteCause::kTokens);
  }
  if (options_.attention > 0 && tokens - looked_at_ >= kAttentionTokens) {
    looked_at_ = tokens;
    return because(RouteCause::kAttention);
  }
  return false;
}

double AnswerWatch::attention_part(double share) {
  highest_ = std::max(highest_, share);
  return highest_ > 0 ? share / highest_ : 1;
}

void AnswerWatch::routed() {
  ++routings_;
  routed_at_ = looked_at_ = asked_;
  highest_ = 0;
}

}  // namespace rhapsode
