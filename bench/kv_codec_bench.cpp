// KV of one passage of 512 tokens to its extent and back, in GB/s of page bytes, beside a plain copy.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/element.h"
#include "store/kv_codec.h"
#include "store/page_pool.h"

namespace {

using namespace rhapsode::kernels;  // NOLINT(google-build-using-namespace)
using namespace rhapsode::store;    // NOLINT(google-build-using-namespace)

constexpr int kTokens = 512;
constexpr int kPages = kTokens / kPageTokens;
constexpr KvShape kShape{24, 2, 64, KvType::kF16};

struct Passage {
  Passage() : pool(*PagePool::create(kShape, kPages * kShape.block_bytes())) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int p = 0; p < kPages; ++p) {
      pins.push_back(pool->allocate());
      pages.push_back(pins.back().get());
      pages.back()->count = kPageTokens;
      auto* halves = reinterpret_cast<uint16_t*>(pages.back()->data);
      for (size_t i = 0; i < kShape.block_bytes() / 2; ++i) halves[i] = f32_to_f16(normal(random));
    }
  }
  std::vector<const Page*> read() const { return {pages.begin(), pages.end()}; }

  std::unique_ptr<PagePool> pool;
  std::vector<PagePin> pins;
  std::vector<Page*> pages;
};

void set_bytes(benchmark::State& state) {
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(kPages * kShape.block_bytes()) * 1e-9 * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void copy(benchmark::State& state) {
  const Passage passage;
  for (auto _ : state) {
    std::vector<std::byte> all(kPages * kShape.block_bytes());
    for (size_t p = 0; p < kPages; ++p) {
      std::memcpy(all.data() + p * kShape.block_bytes(), passage.pages[p]->data, kShape.block_bytes());
    }
    benchmark::DoNotOptimize(all.data());
  }
  set_bytes(state);
}
BENCHMARK(copy)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state) {
  const Passage passage;
  const std::vector<const Page*> pages = passage.read();
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_kv(kShape, static_cast<KvType>(state.range(0)), pages, kTokens));
  }
  set_bytes(state);
}
BENCHMARK(encode)->ArgName("type")->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  Passage passage;
  const auto extent = *encode_kv(kShape, static_cast<KvType>(state.range(0)), passage.read(), kTokens);
  for (auto _ : state) {
    benchmark::DoNotOptimize(decode_kv(kShape, extent, passage.pages, kTokens));
  }
  set_bytes(state);
}
BENCHMARK(decode)->ArgName("type")->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

}  // namespace
