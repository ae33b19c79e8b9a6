// How fast two sources of logits read prompts and generate, measured in turns.
//
// Ours and the peer's runs alternate (ours, peer, ours, peer, ...), so that a machine that slows down slows
// both; only one computes at a time. Each measurement starts with a short warm-up of both; the median of the
// runs counts. Tokens are a fixed pseudo-random sequence: speed does not depend on what they say. Threads:
// one. Errors: those of the sources.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/logit_source.h"

namespace rhapsode::cli {

struct SpeedRow {
  int tokens = 0;  // length of the prompt, or of the context generated behind
  double tokens_per_s = 0;
  std::optional<double> peer_tokens_per_s;

  std::optional<double> ratio() const;
};

struct SpeedHooks {
  std::function<double()> seconds;                      // a steady clock
  std::function<void(const std::string&)> on_progress;  // told what is being measured
};
SpeedHooks steady_hooks(std::function<void(const std::string&)> on_progress);

class SpeedMeter {
 public:
  // `peer` may be null. Token ids are below `vocabulary`.
  SpeedMeter(engine::LogitSource& ours, engine::LogitSource* peer, int vocabulary, SpeedHooks hooks);

  // A prompt of `tokens` from an empty context.
  Result<SpeedRow> prefill(int tokens, int runs);
  // `steps` single tokens behind a context of `context` tokens. A long context is filled once, or not at all
  // right behind a prefill() of the same length, and each run goes on where the one before ended: the last
  // one sees (runs - 1) * steps tokens more.
  Result<SpeedRow> decode(int context, int steps, int runs);

  // What decode() adds to the context at most: room to plan for.
  static int decode_growth(int steps, int runs);

 private:
  using Measure = std::function<Result<double>(engine::LogitSource&)>;  // seconds one run took
  Result<SpeedRow> in_turns(const std::string& what, int tokens, int timed_tokens, int runs,
                            const Measure& measure);
  std::span<const int32_t> some_tokens(int count);

  engine::LogitSource& ours_;
  engine::LogitSource* peer_;
  int vocabulary_;
  SpeedHooks hooks_;
  std::vector<int32_t> tokens_;
  int held_ = -1;  // tokens that both sources hold; -1: something else
};

}  // namespace rhapsode::cli
