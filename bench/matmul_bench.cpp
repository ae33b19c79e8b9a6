// Matrix products through the CPU back end, by weight type: one row in GB/s of weights read (decode), 512
// rows in GFLOP/s (prefill), and the share of what this machine was measured to do at most in the same run
// (read bandwidth; float32 multiply-adds: types with dot-product instructions of their own may go beyond it).
#include <benchmark/benchmark.h>
#include <ggml.h>

#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/ggml_backend.h"
#include "machine_peak.h"
#include "thread_team.h"

namespace {

using namespace rhapsode::kernels;  // NOLINT(google-build-using-namespace)

// The feed-forward matrices of a 1.5B model, enough of them that they do not fit the last-level cache.
constexpr int kColumns = 1536;
constexpr int kRows = 8960;
constexpr int kMatrices = 8;
constexpr int kThreads = 2;

struct Product {
  std::vector<std::byte> bytes;
  std::vector<float> table;
  std::unique_ptr<Backend> backend;
  BatchPlan plan;
  std::vector<int32_t> tokens;
  int recipe = 0;
};

std::vector<std::byte> random_matrices(ggml_type type) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> values(static_cast<size_t>(kColumns) * kRows);
  for (float& value : values) value = normal(random);
  const size_t matrix_bytes = ggml_row_size(type, kColumns) * kRows;
  std::vector<std::byte> bytes(matrix_bytes * kMatrices);
  ggml_quantize_chunk(type, values.data(), bytes.data(), 0, kRows, kColumns, nullptr);
  for (int i = 1; i < kMatrices; ++i)
    std::copy_n(bytes.begin(), matrix_bytes, bytes.begin() + i * matrix_bytes);
  return bytes;
}

std::unique_ptr<Product> make_product(ggml_type type, int rows) {
  auto product = std::make_unique<Product>();
  product->bytes = random_matrices(type);
  product->table.assign(kColumns, 0.5f);
  BackendOptions options;
  options.threads = kThreads;
  options.kv = {.layers = 1, .kv_heads = 1, .head_dim = 16, .type = KvType::kF16};
  options.layers.resize(1);
  options.layers[0].heads = 1;
  options.layers[0].rope.dimensions = 16;
  product->backend = cpu::make_ggml_backend(options).value();
  const auto table = std::as_bytes(std::span(product->table));
  const Weight embedding =
      product->backend->add_weight({"table", GGML_TYPE_F32, kColumns, 1, table}, WeightUse::kTable).value();
  std::vector<Weight> matrices;
  const size_t matrix_bytes = product->bytes.size() / kMatrices;
  for (int i = 0; i < kMatrices; ++i) {
    const auto part = std::span<const std::byte>(product->bytes).subspan(i * matrix_bytes, matrix_bytes);
    matrices.push_back(
        product->backend->add_weight({"matrix", type, kColumns, kRows, part}, WeightUse::kMatrix).value());
  }
  product->recipe = product->backend->add_recipe([=](GraphBuilder& graph) {
    const Value x = graph.token_rows(embedding);
    Value sum = graph.matmul(matrices[0], x);
    for (int i = 1; i < kMatrices; ++i) sum = graph.add(sum, graph.matmul(matrices[i], x));
    return sum;
  });
  product->tokens.assign(rows, 0);
  product->plan.positions.assign(rows, 0);
  product->plan.writes.resize(rows);
  return product;
}

void matmul(benchmark::State& state, ggml_type type, int rows) {
  auto product = make_product(type, rows);
  const int32_t last = rows - 1;
  for (auto _ : state) {
    auto result =
        product->backend->run({product->tokens, &product->plan, std::span(&last, 1)}, product->recipe);
    if (!result.ok()) state.SkipWithError(result.error().message.c_str());
  }
  rhapsode::bench::ThreadTeam team(kThreads);
  const auto peak = rhapsode::bench::measure_machine_peak(team);
  const double seconds_inverse = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  const double gigabytes = product->bytes.size() * 1e-9;
  const double gigaflops = 2e-9 * kColumns * kRows * kMatrices * rows;
  if (rows == 1) {
    state.counters["GB/s"] = benchmark::Counter(gigabytes * seconds_inverse, rate);
    state.counters["of_peak"] = benchmark::Counter(gigabytes * seconds_inverse / peak.read_gb_per_s, rate);
  } else {
    state.counters["GFLOP/s"] = benchmark::Counter(gigaflops * seconds_inverse, rate);
    state.counters["of_peak"] = benchmark::Counter(gigaflops * seconds_inverse / peak.gflop_per_s, rate);
  }
}

const int kRegistered = [] {
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q5_0,
                               GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}) {
    for (const int rows : {1, 512}) {
      const std::string name = std::string("matmul/") + ggml_type_name(type) + "/" + std::to_string(rows);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { matmul(state, type, rows); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
  return 0;
}();

}  // namespace
