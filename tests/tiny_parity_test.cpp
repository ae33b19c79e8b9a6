// Rung 1 on every architecture, rotary kind, weight type and adapter for which a tiny random model can be
// written.
#include <gtest/gtest.h>

#include "engine/llama_peer.h"
#include "engine/parity.h"
#include "support/tiny_models.h"

namespace rhapsode::engine {
namespace {

struct Case {
  const char* model;
  const char* adapter;     // "": none
  double most_difference;  // of logits; 8-bit activations of quantised weights differ by more
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << (*c.adapter ? " with " : "") << c.adapter;
}

class TinyParity : public ::testing::TestWithParam<Case> {};

TEST_P(TinyParity, LogitsAreLibllamas) {
  const Case& c = GetParam();
  RH_REQUIRE_TINY_MODEL(path, c.model);
  RunnerOptions options;
  options.model = path;
  options.kv_type = kernels::KvType::kF32;
  options.threads = 2;
  if (*c.adapter) {
    RH_REQUIRE_TINY_MODEL(adapter, c.adapter);
    options.adapters.push_back({adapter, 0.7f});
  }
  auto runner = ModelRunner::open(options);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  auto ours = RunnerSource::make(**runner, 600, 48).value();
  auto peer = LlamaPeer::open({path, options.adapters, 2, 600, 512, false, true});
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  std::vector<std::vector<int32_t>> prompts;
  for (int length : {1, 2, 17, 64, 65, 300, 500}) {
    auto& prompt = prompts.emplace_back();
    for (int i = 0; i < length; ++i) {
      prompt.push_back(static_cast<int32_t>((i * 37ll + length) % runner.value()->tokenizer().size()));
    }
  }
  auto report = compare_logits(**peer, *ours, prompts, 12);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LE(report->max_abs_logit_diff, c.most_difference);
  EXPECT_EQ(report->mismatches, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, TinyParity,
    ::testing::Values(Case{"llama-f32", "", 0.01}, Case{"llama-f16", "", 0.05}, Case{"llama-bf16", "", 0.5},
                      Case{"llama-q8_0", "", 0.5}, Case{"llama-q4_0", "", 0.5}, Case{"llama-q4_k", "", 0.5},
                      Case{"llama-mha-tied", "", 0.01}, Case{"llama-mqa-wide-head", "", 0.01},
                      Case{"llama-factors", "", 0.01}, Case{"llama-linear", "", 0.01},
                      Case{"llama-yarn", "", 0.01}, Case{"qwen2-f32", "", 0.01}, Case{"qwen2-q8_0", "", 0.5},
                      Case{"qwen2-yarn", "", 0.01}, Case{"qwen3-f32", "", 0.01}, Case{"qwen3-f16", "", 0.05},
                      Case{"gemma3-f32", "", 0.01}, Case{"gemma3-q8_0", "", 0.5},
                      Case{"gemma3-linear", "", 0.01}, Case{"llama-f32", "lora-llama-attention", 0.01},
                      Case{"llama-f32", "lora-llama-all", 0.05}, Case{"llama-q8_0", "lora-llama-q8_0", 0.5},
                      Case{"qwen2-f32", "lora-qwen2", 0.01}, Case{"gemma3-f32", "lora-gemma3", 0.01}),
    [](const auto& test) {
      std::string name =
          std::string(test.param.model) + (*test.param.adapter ? "__" : "") + test.param.adapter;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace rhapsode::engine
