// The small ops around attend: rotating heads and merging partial states, in GB/s of floats read and written.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/attention_state.h"
#include "kernels/rope.h"

namespace {

using namespace rhapsode::kernels;  // NOLINT(google-build-using-namespace)

std::vector<float> normals(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void set_bytes(benchmark::State& state, double floats) {
  state.counters["GB/s"] = benchmark::Counter(
      floats * sizeof(float) * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void merge_states(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0));
  std::vector<float> into = normals(size);
  const std::vector<float> other = normals(size);
  AttentionState sum{0.0f, 1.0f};
  for (auto _ : state) {
    sum = {0.0f, 1.0f};
    merge(sum, into, {0.5f, 1e-6f}, other);
    benchmark::DoNotOptimize(into.data());
  }
  set_bytes(state, 3.0 * static_cast<double>(size));
}
BENCHMARK(merge_states)->Arg(64)->Arg(128)->Arg(256);

void rotate_heads(benchmark::State& state) {
  RopeSpec spec;
  spec.dimensions = static_cast<int>(state.range(0));
  spec.pairing = state.range(1) ? RopePairing::kAdjacent : RopePairing::kHalves;
  RopeTable table(spec);
  constexpr int kPositions = 512;
  table.prepare(0, kPositions - 1);
  const auto size = static_cast<size_t>(state.range(0));
  std::vector<float> heads = normals(size * kPositions);
  for (auto _ : state) {
    for (int position = 0; position < kPositions; ++position) {
      table.rotate(heads.data() + static_cast<size_t>(position) * size, position);
    }
    benchmark::ClobberMemory();
  }
  set_bytes(state, 3.0 * static_cast<double>(size) * kPositions);
}
BENCHMARK(rotate_heads)->ArgNames({"d", "adjacent"})->Args({64, 0})->Args({64, 1})->Args({128, 0});

// What a context costs once: one row of sines and cosines a position.
void prepare_rows(benchmark::State& state) {
  RopeSpec spec;
  spec.dimensions = 128;
  for (auto _ : state) {
    RopeTable table(spec);
    table.prepare(0, static_cast<int32_t>(state.range(0)) - 1);
    benchmark::DoNotOptimize(table.row(0));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(prepare_rows)->Arg(512)->Arg(16384)->Unit(benchmark::kMillisecond);

}  // namespace
