#include "kernels/rope.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace rhapsode::kernels {
namespace {

struct RopeCase {
  const char* name;
  RopeSpec spec;
};

RopeSpec make_spec(int dimensions, double theta) {
  RopeSpec spec;
  spec.dimensions = dimensions;
  spec.theta = theta;
  return spec;
}

std::vector<RopeCase> cases() {
  std::vector<RopeCase> result;
  for (const RopePairing pairing : {RopePairing::kAdjacent, RopePairing::kHalves}) {
    RopeSpec plain = make_spec(64, 10000.0);
    plain.pairing = pairing;
    result.push_back({"plain", plain});
    RopeSpec partial = plain;
    partial.dimensions = 20;
    result.push_back({"partial", partial});
    RopeSpec linear = plain;
    linear.frequency_scale = 0.25;
    result.push_back({"linear", linear});
    RopeSpec llama3 = plain;
    llama3.theta = 500000.0;
    for (int pair = 0; pair < 32; ++pair) llama3.factors.push_back(1.0 + pair * 0.25);
    result.push_back({"llama3", llama3});
    RopeSpec yarn = plain;
    yarn.theta = 1e6;
    yarn.frequency_scale = 0.25;
    yarn.yarn_extrapolation = 1.0;
    yarn.yarn_attention_factor = 0.9;
    yarn.yarn_original_context = 4096;
    result.push_back({"yarn", yarn});
  }
  return result;
}

// One head turned by ggml's own operation.
std::vector<float> rotate_with_ggml(const RopeSpec& spec, const std::vector<float>& head, int32_t position) {
  ggml_backend_load_all();
  ggml_backend_t backend = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
  ggml_context* context = ggml_init({1 << 20, nullptr, true});
  ggml_tensor* x = ggml_new_tensor_3d(context, GGML_TYPE_F32, static_cast<int64_t>(head.size()), 1, 1);
  ggml_tensor* positions = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
  const std::vector<float> factors(spec.factors.begin(), spec.factors.end());
  ggml_tensor* divisors = nullptr;
  if (!factors.empty()) divisors = ggml_new_tensor_1d(context, GGML_TYPE_F32, spec.dimensions / 2);
  const int mode = spec.pairing == RopePairing::kHalves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
  ggml_tensor* y = ggml_rope_ext(
      context, x, positions, divisors, spec.dimensions, mode, spec.yarn_original_context,
      static_cast<float>(spec.theta), static_cast<float>(spec.frequency_scale),
      static_cast<float>(spec.yarn_extrapolation), static_cast<float>(spec.yarn_attention_factor),
      static_cast<float>(spec.yarn_beta_fast), static_cast<float>(spec.yarn_beta_slow));
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, y);
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
  ggml_backend_tensor_set(x, head.data(), 0, ggml_nbytes(x));
  ggml_backend_tensor_set(positions, &position, 0, sizeof(position));
  if (divisors) ggml_backend_tensor_set(divisors, factors.data(), 0, ggml_nbytes(divisors));
  EXPECT_EQ(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
  std::vector<float> result(head.size());
  ggml_backend_tensor_get(y, result.data(), 0, ggml_nbytes(y));
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
  ggml_backend_free(backend);
  return result;
}

std::vector<float> random_head(std::mt19937& random, size_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> head(size);
  for (float& value : head) value = normal(random);
  return head;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Rope, RotatesAsGgmlDoes) {
  std::mt19937 random(1);
  for (const RopeCase& c : cases()) {
    RopeTable table(c.spec);
    for (const int32_t position : {0, 1, 63, 500, 2047}) {
      SCOPED_TRACE(std::string(c.name) + " at " + std::to_string(position));
      std::vector<float> head = random_head(random, 64);
      const std::vector<float> expected = rotate_with_ggml(c.spec, head, position);
      table.prepare(position, position);
      table.rotate(head.data(), position);
      // ggml multiplies its angles up in float32: 2e-7 a pair, times the position.
      for (size_t i = 0; i < head.size(); ++i) EXPECT_NEAR(head[i], expected[i], 1e-5 + 1e-6 * position);
    }
  }
}

TEST(Rope, ScoresDependOnDistanceOnly) {
  std::mt19937 random(2);
  for (const RopeCase& c : cases()) {
    RopeTable table(c.spec);
    table.prepare(-70000, -69000);
    table.prepare(-1000, 2000);
    const std::vector<float> q = random_head(random, 64);
    const std::vector<float> k = random_head(random, 64);
    double expected = 0.0;
    for (const int32_t base : {0, 700, -600, -69900}) {
      std::vector<float> turned_q = q;
      std::vector<float> turned_k = k;
      table.rotate(turned_q.data(), base + 300);
      table.rotate(turned_k.data(), base);
      const double score = dot(turned_q, turned_k);
      if (base == 0) expected = score;
      EXPECT_NEAR(score, expected, 2e-5) << c.name << " from " << base;
    }
  }
}

TEST(Rope, RowsHoldTheAnglesOfTheirPosition) {
  RopeSpec spec = make_spec(32, 10000.0);
  RopeTable table(spec);
  const std::vector<double> frequencies = spec.frequencies();
  for (const int32_t position : {-257, -256, -255, -1, 0, 255, 256, 1 << 20, -(1 << 20)}) {
    table.prepare(position, position);
    const float* row = table.row(position);
    for (size_t pair = 0; pair < 16; ++pair) {
      EXPECT_FLOAT_EQ(row[pair], static_cast<float>(std::cos(position * frequencies[pair])));
      EXPECT_FLOAT_EQ(row[16 + pair], static_cast<float>(std::sin(position * frequencies[pair])));
    }
  }
}

TEST(Rope, PreparingMoreLeavesRowsWhereTheyAre) {
  RopeTable table(make_spec(32, 10000.0));
  table.prepare(100, 200);
  const float* row = table.row(150);
  table.prepare(-5000, 5000);
  EXPECT_EQ(table.row(150), row);
}

TEST(Rope, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  RopeSpec spec = make_spec(128, 1e6);
  spec.frequency_scale = 0.25;
  spec.yarn_extrapolation = 1.0;
  spec.yarn_original_context = 32768;
  const std::vector<double> frequencies = spec.frequencies();
  EXPECT_DOUBLE_EQ(frequencies.front(), 1.0);
  EXPECT_DOUBLE_EQ(frequencies.back(), std::pow(1e6, -126.0 / 128.0) * 0.25);
  EXPECT_NEAR(spec.magnitude(), 1.0 + 0.1 * std::log(4.0), 1e-12);
  EXPECT_DOUBLE_EQ(make_spec(128, 1e6).magnitude(), 1.0);
}

TEST(Rope, NoRotatedDimensionsLeaveAHeadAlone) {
  RopeTable table(make_spec(0, 10000.0));
  table.prepare(0, 10);
  std::vector<float> head(16, 1.5f);
  table.rotate(head.data(), 7);
  EXPECT_EQ(head, std::vector<float>(16, 1.5f));
}

}  // namespace
}  // namespace rhapsode::kernels
