// Bookkeeping of sequences: fork, plan and prefix lookup of a long context. Counters: pages, pages copied.
#include <benchmark/benchmark.h>

#include <vector>

#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace rhapsode::engine {
namespace {

// The shape of qwen2.5-coder-0.5b in float16.
kernels::KvShape shape() {
  return {.layers = 24, .kv_heads = 2, .head_dim = 64, .type = kernels::KvType::kF16};
}

struct LongSequence {
  explicit LongSequence(int tokens)
      : pool(store::PagePool::create(shape(), shape().block_bytes() * (2 * tokens / 64 + 8)).value()),
        sequence(*pool) {
    (void)sequence.reserve(tokens);
    sequence.commit(tokens);
  }
  std::unique_ptr<store::PagePool> pool;
  Sequence sequence;
};

void fork(benchmark::State& state) {
  LongSequence from(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    Sequence forked = from.sequence.fork();
    benchmark::DoNotOptimize(forked.tokens());
  }
  state.counters["pages"] = from.sequence.pages();
  state.counters["pages_copied"] = static_cast<double>(from.pool->stats().copies);
}
BENCHMARK(fork)->Arg(1000)->Arg(8000)->Arg(32000);

void plan_of_one_decode_row(benchmark::State& state) {
  LongSequence from(static_cast<int>(state.range(0)));
  (void)from.sequence.reserve(1);
  for (auto _ : state) {
    kernels::BatchPlan plan;
    from.sequence.add_to_plan(1, plan);
    benchmark::DoNotOptimize(kernels::validate(plan, shape()).ok());
  }
}
BENCHMARK(plan_of_one_decode_row)->Arg(1000)->Arg(8000)->Arg(32000);

// A blend of five passages of `range` tokens, 15 % of them evaluated again, and a question of 30: everything
// from adopting the pages to the validated plan.
void plan_of_a_blend(benchmark::State& state) {
  const int tokens = static_cast<int>(state.range(0));
  LongSequence stored(tokens);
  LongSequence reader(5 * tokens);  // only for its pool
  std::vector<store::PagePin> pages;
  for (int i = 0; i < stored.sequence.pages(); ++i) pages.push_back(stored.sequence.page(i).share());
  std::vector<int32_t> left_out;
  for (int token = 0; token < tokens; token += 7) left_out.push_back(token);
  for (auto _ : state) {
    Sequence sequence(*reader.pool);
    std::vector<int32_t> positions;
    for (int p = 0; p < 5; ++p) {
      sequence.adopt_passage(pages, tokens, p * tokens, left_out);
      for (const int32_t token : left_out) positions.push_back(p * tokens + token);
    }
    const int rows = static_cast<int>(positions.size()) + 30;
    sequence.blend_tokens(std::move(positions));
    if (!sequence.reserve(rows)) return state.SkipWithError("no room");
    kernels::BatchPlan plan;
    sequence.add_to_plan(rows, plan);
    benchmark::DoNotOptimize(kernels::validate(plan, shape()).ok());
  }
  pages.clear();
}
BENCHMARK(plan_of_a_blend)->Arg(128)->Arg(512);

void prefix_lookup(benchmark::State& state) {
  const int tokens = static_cast<int>(state.range(0));
  LongSequence from(tokens);
  std::vector<int32_t> ids(tokens);
  for (int i = 0; i < tokens; ++i) ids[i] = i * 7919 % 50021;
  PrefixCache cache;
  cache.insert({}, ids, from.sequence);
  for (auto _ : state) {
    Sequence sequence(*from.pool);
    benchmark::DoNotOptimize(cache.lookup({}, ids, sequence).tokens);
  }
}
BENCHMARK(prefix_lookup)->Arg(1000)->Arg(8000)->Arg(32000);

}  // namespace
}  // namespace rhapsode::engine
