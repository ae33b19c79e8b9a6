// PassRunner: how recall gets forward passes and pages, from whoever owns the model.
//
// The engine implements it over its scheduler, so that passes for encoding, routing, judging and citing take
// turns with those of requests, under one cap of pages. Threads: every function from any thread that is not
// the engine's worker. Errors: those of a pass; kNoSpace when pages cannot be had; kCancelled when the engine
// is closing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/context_plan.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "store/page_pool.h"
#include "text/tokenizer.h"

namespace rhapsode::recall {

struct PassBatch {
  kernels::BatchPlan plan;
  std::vector<int32_t> tokens;
  std::vector<int32_t> output_rows;  // ascending
  bool mass = false;                 // also asks where attention went
  // [output_rows]: with goal kLogits, the result is the log-probability of each of these tokens,
  // [output_rows][1].
  std::vector<int32_t> targets;
  // How many output rows, in their order, are added up for each row of the result; empty: none are.
  std::vector<int32_t> pools;
};

// [references][64] of each sequence: attention probabilities of its slots, summed over rows, heads and
// layers.
using AttentionMass = std::vector<std::vector<double>>;

class PassRunner {
 public:
  virtual ~PassRunner() = default;

  // One pass of at most most_rows() rows. `on_result` sees [output_rows][width] (width: vocabulary for
  // logits, embedding for states) during the call only, on another thread.
  using OnResult = std::function<void(std::span<const float> result)>;
  virtual Status run(const PassBatch& batch, model::PassGoal goal, const OnResult& on_result) = 0;
  // The attention mass of a pass; batch.mass is set and no result is wanted.
  virtual Result<AttentionMass> attention_mass(const PassBatch& batch) = 0;
  // Empty pages of the engine's pool, so many for each of the counts, one behind the other. Those of one
  // count lie on one device as far as it has room, different counts where most room is.
  virtual Result<std::vector<store::PagePin>> take_pages(std::span<const int> counts) = 0;
  Result<std::vector<store::PagePin>> take_pages(int count) { return take_pages(std::span(&count, 1)); }
  // Rows to put into the next pass at most; smaller while somebody waits for a token.
  virtual int most_rows() const = 0;
  // Output rows to put into a pass with logits at most: they cost memory.
  virtual int most_logit_rows() const { return 128; }

  virtual const model::Architecture& architecture() const = 0;
  virtual const kernels::KvShape& kv_shape() const = 0;
  virtual const text::Tokenizer& tokenizer() const = 0;
};

}  // namespace rhapsode::recall
