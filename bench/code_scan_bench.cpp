// The exact scan at d = 896: 30 question tokens against 100,000 chunks in passages of 32, in chunks/s and
// GB/s of codes, beside the machine's read bandwidth and (on 1,000 chunks) the reference.
#include <benchmark/benchmark.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "index/code_scan.h"
#include "index/code_scan_kernels.h"
#include "machine_peak.h"
#include "thread_team.h"

namespace {

using namespace rhapsode::index;  // NOLINT(google-build-using-namespace)

constexpr int kDimensions = 896;
constexpr int kTokens = 30;
constexpr int kChunksAPassage = 32;

struct Corpus {
  explicit Corpus(int chunks) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(kDimensions)));
    codes.resize(static_cast<size_t>(chunks) * (kDimensions / 64));
    for (uint64_t& word : codes) word = random();
    for (int p = 0; p < chunks / kChunksAPassage; ++p) {
      const size_t begin = static_cast<size_t>(p) * kChunksAPassage * (kDimensions / 64);
      passages.push_back({p, reinterpret_cast<const std::byte*>(codes.data() + begin), kChunksAPassage});
    }
    question.dimensions = kDimensions;
    question.weights.assign(kTokens, 1.0f);
    question.vectors.resize(size_t{kTokens} * kDimensions);
    for (float& value : question.vectors) value = normal(random);
  }
  std::vector<uint64_t> codes;
  std::vector<PassageCodes> passages;
  QuestionVectors question;
};

double read_bandwidth(int threads) {
  static std::map<int, double> known;
  if (known.count(threads) == 0) {
    rhapsode::bench::ThreadTeam team(threads);
    known[threads] = rhapsode::bench::measure_machine_peak(team).read_gb_per_s;
  }
  return known[threads];
}

void set_rates(benchmark::State& state, const Corpus& corpus, int threads) {
  const auto chunks = static_cast<double>(corpus.passages.size() * kChunksAPassage);
  const auto rate = [&](double amount) {
    return benchmark::Counter(amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  state.counters["chunks/s"] = rate(chunks);
  state.counters["GB/s"] = rate(static_cast<double>(corpus.codes.size() * 8) * 1e-9);
  state.counters["machine GB/s"] = read_bandwidth(threads);
}

void scan(benchmark::State& state, QuestionForm form) {
  const Corpus corpus(100'000);
  const auto threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(best_passages(corpus.question, corpus.passages, form, 20, threads));
  }
  set_rates(state, corpus, threads);
}

void scan_four_bits(benchmark::State& state) {
  scan(state, QuestionForm::kFourBits);
}
BENCHMARK(scan_four_bits)->ArgName("threads")->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void scan_float(benchmark::State& state) {
  scan(state, QuestionForm::kFloat);
}
BENCHMARK(scan_float)->ArgName("threads")->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

// What machines with lesser instruction sets get.
void scan_on(benchmark::State& state, QuestionForm form, const char* target) {
  if (!force_scan_target(target)) {
    state.SkipWithError("this CPU does not have it");
    return;
  }
  scan(state, form);
  force_scan_target("");
}
BENCHMARK_CAPTURE(scan_on, four_bits_AVX3, QuestionForm::kFourBits, "AVX3")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scan_on, four_bits_AVX2, QuestionForm::kFourBits, "AVX2")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scan_on, float_AVX2, QuestionForm::kFloat, "AVX2")->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scan_on, four_bits_SSE4, QuestionForm::kFourBits, "SSE4")
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

void scan_reference(benchmark::State& state) {
  const Corpus corpus(1'024);
  for (auto _ : state) benchmark::DoNotOptimize(reference::score_passages(corpus.question, corpus.passages));
  set_rates(state, corpus, 1);
}
BENCHMARK(scan_reference)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
