// LogitSource: anything that reads tokens one sequence at a time and predicts the next one.
//
// The seam at which our engine and libllama are compared and timed. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "engine/model_runner.h"
#include "engine/sequence.h"

namespace rhapsode::engine {

class LogitSource {
 public:
  virtual ~LogitSource() = default;
  // Forgets everything evaluated so far.
  virtual void reset() = 0;
  // Evaluates tokens behind what is there; the logits of the last one, valid until the next call.
  virtual Result<std::span<const float>> evaluate(std::span<const int32_t> tokens) = 0;
};

// Our own engine as one sequence, in chunks of `chunk_tokens`.
class RunnerSource final : public LogitSource {
 public:
  // A page pool for `context_tokens` is made here; the runner outlives the source.
  static Result<std::unique_ptr<RunnerSource>> make(ModelRunner& runner, int context_tokens,
                                                    int chunk_tokens);

  void reset() override { sequence_.truncate(0); }
  Result<std::span<const float>> evaluate(std::span<const int32_t> tokens) override;

  Sequence& sequence() { return sequence_; }
  store::PagePool& pool() { return *pool_; }

 private:
  RunnerSource(ModelRunner& runner, std::unique_ptr<store::PagePool> pool, int chunk_tokens);

  ModelRunner& runner_;
  std::unique_ptr<store::PagePool> pool_;
  Sequence sequence_;
  int chunk_tokens_;
};

}  // namespace rhapsode::engine
