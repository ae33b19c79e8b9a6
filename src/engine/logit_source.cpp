#include "engine/logit_source.h"

#include <algorithm>

namespace rhapsode::engine {

RunnerSource::RunnerSource(ModelRunner& runner, std::unique_ptr<store::PagePool> pool, int chunk_tokens)
    : runner_(runner), pool_(std::move(pool)), sequence_(*pool_), chunk_tokens_(chunk_tokens) {
  if (runner_.most_rows() > 0) chunk_tokens_ = std::min(chunk_tokens_, runner_.most_rows());
}

Result<std::unique_ptr<RunnerSource>> RunnerSource::make(ModelRunner& runner, int context_tokens,
                                                         int chunk_tokens) {
  const auto devices = static_cast<uint64_t>(runner.devices());
  const uint64_t pages = (context_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens + 1;
  const uint64_t blocks = (pages + devices - 1) / devices * devices;
  RH_TRY(auto pool, runner.make_pool(blocks * runner.kv_shape().block_bytes()));
  return std::unique_ptr<RunnerSource>(new RunnerSource(runner, std::move(pool), chunk_tokens));
}

Result<std::span<const float>> RunnerSource::evaluate(std::span<const int32_t> tokens) {
  std::span<const float> logits;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk_tokens_) {
    const auto part = tokens.subspan(begin, std::min<size_t>(chunk_tokens_, tokens.size() - begin));
    const int rows = static_cast<int>(part.size());
    if (!sequence_.reserve(rows)) {
      return make_error(ErrorKind::kTooLarge, "{} tokens do not fit this source's pages",
                        sequence_.tokens() + rows);
    }
    kernels::BatchPlan plan;
    sequence_.add_to_plan(rows, plan);
    const int32_t last = rows - 1;
    const bool wanted = begin + part.size() == tokens.size();
    const auto outputs = std::span<const int32_t>(&last, wanted ? 1 : 0);
    RH_TRY(logits, runner_.evaluate({part, &plan, outputs}));
    sequence_.commit(rows);
  }
  return logits;
}

}  // namespace rhapsode::engine
