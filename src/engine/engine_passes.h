// The engine's side of recall::PassRunner: passes and pages through the scheduler.
#pragma once

#include <vector>

#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "recall/pass_runner.h"

namespace rhapsode::engine {

class EnginePasses final : public recall::PassRunner {
 public:
  EnginePasses(ModelRunner& runner, Scheduler& scheduler) : runner_(runner), scheduler_(scheduler) {}

  Status run(const recall::PassBatch& batch, model::PassGoal goal, const OnResult& on_result) override;
  Result<recall::AttentionMass> attention_mass(const recall::PassBatch& batch) override;
  using PassRunner::take_pages;
  Result<std::vector<store::PagePin>> take_pages(std::span<const int> counts) override;
  int most_rows() const override;
  int most_logit_rows() const override { return runner_.most_scored_rows(); }
  const model::Architecture& architecture() const override { return runner_.architecture(); }
  const kernels::KvShape& kv_shape() const override { return runner_.kv_shape(); }
  const text::Tokenizer& tokenizer() const override { return runner_.tokenizer(); }

 private:
  ModelRunner& runner_;
  Scheduler& scheduler_;
};

}  // namespace rhapsode::engine
