// The tiny models are worth comparing with only if libllama itself loads and runs them, and if they are not
// degenerate.
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "model/gguf_file.h"
#include "support/tiny_models.h"

namespace rhapsode {
namespace {

using Model = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using Context = std::unique_ptr<llama_context, decltype(&llama_free)>;

void be_quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

Model load(const std::filesystem::path& path) {
  llama_log_set(be_quiet, nullptr);
  return {llama_model_load_from_file(path.c_str(), llama_model_default_params()), &llama_model_free};
}

std::vector<float> last_logits(llama_model* model, llama_adapter_lora* adapter, int tokens, int first = 11) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 256;
  params.n_threads = params.n_threads_batch = 1;
  Context context{llama_init_from_model(model, params), &llama_free};
  if (!context) return {};
  float scale = 1.0f;
  if (adapter && llama_set_adapters_lora(context.get(), &adapter, 1, &scale) != 0) return {};
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  std::vector<llama_token> text;
  for (int i = 0; i < tokens; ++i) text.push_back(i == 0 ? first : (i * 37 + 11) % vocabulary);
  if (llama_decode(context.get(), llama_batch_get_one(text.data(), tokens)) != 0) return {};
  const float* logits = llama_get_logits_ith(context.get(), -1);
  return {logits, logits + vocabulary};
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

void expect_spread(const std::vector<float>& logits) {
  ASSERT_FALSE(logits.empty());
  for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
  const auto [least, most] = std::minmax_element(logits.begin(), logits.end());
  EXPECT_GT(*most - *least, 1.0f);
  EXPECT_LT(*most - *least, 200.0f);
}

class TinyModel : public testing::TestWithParam<const char*> {};

TEST_P(TinyModel, RunsInLibllama) {
  RH_REQUIRE_TINY_MODEL(path, GetParam());
  const auto file = model::GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Model model = load(path);
  ASSERT_NE(model, nullptr);
  const std::vector<float> logits = last_logits(model.get(), nullptr, 100);
  expect_spread(logits);
  // The context matters: another first token, 99 rows back, is seen at the end.
  EXPECT_GT(largest_difference(logits, last_logits(model.get(), nullptr, 100, 12)), 0.01f);
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  const std::string text = "Grüße, 42 ☃\n  the end";
  std::vector<llama_token> tokens(256);
  const int count = llama_tokenize(vocabulary, text.data(), static_cast<int>(text.size()), tokens.data(), 256,
                                   false, false);
  ASSERT_GT(count, 0);
  std::string back(256, '\0');
  back.resize(static_cast<size_t>(
      llama_detokenize(vocabulary, tokens.data(), count, back.data(), 256, false, false)));
  EXPECT_EQ(back, text);
}

INSTANTIATE_TEST_SUITE_P(All, TinyModel,
                         testing::Values("llama-f32", "llama-f16", "llama-bf16", "llama-q8_0", "llama-q4_0",
                                         "llama-q4_k", "llama-mha-tied", "llama-mqa-wide-head",
                                         "llama-factors", "llama-linear", "llama-yarn", "qwen2-f32",
                                         "qwen2-q8_0", "qwen2-yarn", "qwen3-f32", "qwen3-f16", "gemma3-f32",
                                         "gemma3-q8_0", "gemma3-linear"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

struct AdapterCase {
  const char* adapter;
  const char* base;
};

class TinyAdapter : public testing::TestWithParam<AdapterCase> {};

TEST_P(TinyAdapter, ChangesLogitsInLibllama) {
  RH_REQUIRE_TINY_MODEL(base, GetParam().base);
  RH_REQUIRE_TINY_MODEL(path, GetParam().adapter);
  const auto file = model::GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Model model = load(base);
  ASSERT_NE(model, nullptr);
  llama_adapter_lora* adapter = llama_adapter_lora_init(model.get(), path.c_str());  // freed with the model
  ASSERT_NE(adapter, nullptr);
  const std::vector<float> with = last_logits(model.get(), adapter, 60);
  expect_spread(with);
  EXPECT_GT(largest_difference(with, last_logits(model.get(), nullptr, 60)), 0.1f);
}

INSTANTIATE_TEST_SUITE_P(All, TinyAdapter,
                         testing::Values(AdapterCase{"lora-llama-attention", "llama-f32"},
                                         AdapterCase{"lora-llama-all", "llama-f32"},
                                         AdapterCase{"lora-llama-q8_0", "llama-q8_0"},
                                         AdapterCase{"lora-qwen2", "qwen2-f32"},
                                         AdapterCase{"lora-gemma3", "gemma3-f32"}));

}  // namespace
}  // namespace rhapsode
