#include "kernels/cpu/ggml_backend.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace rhapsode::kernels::cpu {
namespace {

constexpr int kColumns = 32;
constexpr int kRows = 8;

BackendOptions small_options(bool deterministic) {
  BackendOptions options;
  options.deterministic = deterministic;
  options.kv = {.layers = 1, .kv_heads = 1, .head_dim = 16, .type = KvType::kF32};
  options.layers.resize(1);
  options.layers[0].heads = 1;
  options.layers[0].rope.dimensions = 16;
  return options;
}

// table[i][c] = i + c and matrix[r][c] = r - c, at an address that is `offset` bytes off alignment.
std::vector<float> product_of(int offset, bool deterministic, std::span<const int32_t> tokens) {
  std::vector<std::byte> storage((kRows * kColumns * 2) * sizeof(float) + 256);
  auto base = reinterpret_cast<uintptr_t>(storage.data());
  std::byte* data = storage.data() + (64 - base % 64) + offset;
  std::vector<float> table(kRows * kColumns), matrix(kRows * kColumns);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      table[r * kColumns + c] = static_cast<float>(r + c);
      matrix[r * kColumns + c] = static_cast<float>(r - c);
    }
  }
  const size_t bytes = table.size() * sizeof(float);
  std::memcpy(data, table.data(), bytes);
  std::memcpy(data + bytes, matrix.data(), bytes);
  auto backend = make_ggml_backend(small_options(deterministic)).value();
  const auto source = [&](const char* name, const std::byte* at) {
    return WeightSource{name, GGML_TYPE_F32, kColumns, kRows, std::span(at, bytes)};
  };
  const Weight t = backend->add_weight(source("table", data), WeightUse::kTable).value();
  const Weight m = backend->add_weight(source("matrix", data + bytes), WeightUse::kMatrix).value();
  const int recipe = backend->add_recipe(
      [=](GraphBuilder& graph) { return graph.output_rows(graph.matmul(m, graph.token_rows(t))); });
  BatchPlan plan;
  plan.positions.assign(tokens.size(), 0);
  plan.writes.resize(tokens.size());
  std::vector<int32_t> rows(tokens.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  const auto result = backend->run({tokens, &plan, rows}, recipe).value();
  return {result.begin(), result.end()};
}

std::vector<float> expected_product(std::span<const int32_t> tokens) {
  std::vector<float> out;
  for (const int32_t token : tokens) {
    for (int r = 0; r < kRows; ++r) {
      double sum = 0;
      for (int c = 0; c < kColumns; ++c) sum += static_cast<double>(token + c) * (r - c);
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

TEST(GgmlBackend, MultipliesWeightsAtAnyAlignment) {
  const std::vector<int32_t> tokens = {3, 0, 7};
  for (const int offset : {0, 4, 8, 16, 32}) {
    EXPECT_EQ(product_of(offset, false, tokens), expected_product(tokens)) << offset << " bytes off";
  }
}

TEST(GgmlBackend, DeterministicPassesArePaddedAndReturnOnlyTheirRows) {
  const std::vector<int32_t> tokens = {5};
  EXPECT_EQ(product_of(0, true, tokens), expected_product(tokens));
}

TEST(GgmlBackend, RefusesTypesThatCannotBeMultiplied) {
  auto backend = make_ggml_backend(small_options(false)).value();
  const std::vector<std::byte> bytes(1024);
  const auto weight = backend->add_weight({"ids", GGML_TYPE_I32, 16, 16, bytes}, WeightUse::kMatrix);
  ASSERT_FALSE(weight.ok());
  EXPECT_EQ(weight.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(weight.error().message.find("ids"), std::string::npos);
}

}  // namespace
}  // namespace rhapsode::kernels::cpu
