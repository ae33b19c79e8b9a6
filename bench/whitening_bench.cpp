// Whitening: residual states to question vectors and to codes (GFLOP/s: d * d multiply-adds a state), and
// what training costs once a model.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "index/whitening.h"

namespace {

using namespace rhapsode::index;  // NOLINT(google-build-using-namespace)

std::vector<float> normals(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

WhiteningTrainer fed_trainer(int d, int chunks) {
  const auto size = static_cast<size_t>(d);
  const std::vector<float> states = normals(size * 512);
  WhiteningTrainer trainer(d, 5, "bench");
  for (int i = 0; i < chunks; ++i) {
    trainer.add_chunk(std::span(states).subspan(static_cast<size_t>(i % 512) * size, size));
  }
  trainer.add_question_token(std::span(states).first(size));
  return trainer;
}

void set_rate(benchmark::State& state, double d, double vectors) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * d * d * vectors * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void transform_question(benchmark::State& state) {
  const auto d = static_cast<size_t>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1));
  const Whitening whitening = *fed_trainer(static_cast<int>(d), 520).finish(true);
  const std::vector<float> states = normals(count * d);
  std::vector<float> out(count * d);
  for (auto _ : state) {
    whitening.transform_question(states, out);
    benchmark::DoNotOptimize(out.data());
  }
  set_rate(state, static_cast<double>(d), static_cast<double>(count));
}
BENCHMARK(transform_question)
    ->ArgNames({"d", "tokens"})
    ->Args({896, 1})
    ->Args({896, 40})
    ->Args({1536, 40})
    ->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state) {
  const auto d = static_cast<size_t>(state.range(0));
  const Whitening whitening = *fed_trainer(static_cast<int>(d), 520).finish(true);
  const std::vector<float> states = normals(32 * d);
  std::vector<std::byte> codes(32 * static_cast<size_t>(whitening.code_bytes()));
  for (auto _ : state) {
    whitening.encode(states, codes);
    benchmark::DoNotOptimize(codes.data());
  }
  set_rate(state, static_cast<double>(d), 32.0);
}
BENCHMARK(encode)->ArgName("d")->Arg(896)->Arg(1536)->Unit(benchmark::kMillisecond);

void train(benchmark::State& state) {
  const auto d = static_cast<int>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(fed_trainer(d, 20'000).finish(true));
}
BENCHMARK(train)->ArgName("d")->Arg(576)->Arg(896)->Arg(1536)->Unit(benchmark::kSecond)->Iterations(1);

}  // namespace
