// The engine on real weights: what tiny random models cannot show. Slow tier.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/llama_peer.h"
#include "engine/parity.h"
#include "rhapsode/engine.h"
#include "support/test_models.h"

namespace rhapsode {
namespace {

constexpr char kText[] =
    "The harbour master kept two ledgers. In the first he wrote the ships that had come in, with their cargo "
    "and the "
    "hour of the tide; in the second, which nobody else was allowed to read, he wrote the ships that he had "
    "expected. ";

std::string long_text(int repeats) {
  std::string text;
  for (int i = 0; i < repeats; ++i) text += std::to_string(i) + ". " + kText;
  return text;
}

class RealModel : public ::testing::TestWithParam<const char*> {};

TEST_P(RealModel, DeterministicModeHoldsOnShippedWeights) {  // S6
  RH_REQUIRE_MODEL(path, GetParam());
  EngineOptions options;
  options.model = path;
  options.deterministic = true;
  options.kv_cap_bytes = 1ull << 30;
  std::vector<std::vector<float>> seen;
  for (const int threads : {1, 2}) {
    options.threads = threads;
    options.batch_tokens = threads == 1 ? 16 : 7;
    auto engine = Engine::open(options).value();
    Request request;
    request.text = long_text(6);
    request.max_tokens = 12;
    request.top_logprobs = 0;
    for (int i = 0; i < 2; ++i) {  // the second time from the prefix cache
      const Response response = engine->run(request).value();
      EXPECT_EQ(response.usage.cached_tokens > 0, i == 1);
      auto& signature = seen.emplace_back();
      for (const auto& token : response.tokens)
        signature.insert(signature.end(), {float(token.token), token.logprob});
    }
  }
  for (const auto& signature : seen) EXPECT_EQ(signature, seen[0]);
}

TEST_P(RealModel, ChatTurnEndsAndReadsLikeText) {
  RH_REQUIRE_MODEL(path, GetParam());
  EngineOptions options;
  options.model = path;
  options.kv_cap_bytes = 1ull << 30;
  auto engine = Engine::open(options).value();
  Request request;
  request.messages = {{"user", "What is the capital of France? Answer with one word."}};
  request.max_tokens = 40;
  const Response response = engine->run(request).value();
  EXPECT_EQ(response.finish, FinishReason::kEnd);
  EXPECT_NE(response.text.find("Paris"), std::string::npos) << response.text;
}

TEST_P(RealModel, EveryKvTypeStaysCloseToFloat32) {  // G7
  RH_REQUIRE_MODEL(path, GetParam());
  auto source_of = [&](kernels::KvType type, std::unique_ptr<engine::ModelRunner>& runner) {
    engine::RunnerOptions options;
    options.model = path;
    options.kv_type = type;
    options.threads = 2;
    runner = engine::ModelRunner::open(options).value();
    return engine::RunnerSource::make(*runner, 1024, 256).value();
  };
  std::unique_ptr<engine::ModelRunner> exact_runner;
  auto exact = source_of(kernels::KvType::kF32, exact_runner);
  const std::vector<std::vector<int32_t>> prompts = {
      exact_runner->tokenizer().encode(long_text(5), {}).value()};
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kBF16, kernels::KvType::kI8}) {
    std::unique_ptr<engine::ModelRunner> runner;
    auto source = source_of(type, runner);
    const auto report = engine::compare_logits(*exact, *source, prompts, 16).value();
    std::printf("  %s: mean KL %.4g, equal %.3f, max |logit diff| %.3f\n", kernels::to_string(type),
                report.mean_kl, report.equal_share(), report.max_abs_logit_diff);
    EXPECT_LT(report.mean_kl, 0.05);
  }
}

// Lookups among as many lookalikes, and far from where they are asked: where rounding of keys would first
// tell.
TEST_P(RealModel, G7LookupsHoldInEveryKvType) {
  RH_REQUIRE_MODEL(path, GetParam());
  constexpr int kFacts = 20;
  const auto code = [](int i) { return fmt::format("{:04x}", i * 7919 % 65536); };
  std::string facts;
  for (int i = 1; i <= kFacts; ++i) facts += fmt::format("Box {:04} holds code {}.\n", i, code(i));
  facts += long_text(30);
  std::map<KvStorage, int> right;
  for (const KvStorage type : {KvStorage::kF16, KvStorage::kBF16, KvStorage::kI8}) {
    EngineOptions options;
    options.model = path;
    options.kv_cap_bytes = 1ull << 30;
    options.kv_type = type;
    auto engine = Engine::open(options).value();
    for (int i = 1; i <= kFacts; ++i) {
      Request request;
      request.text = facts + fmt::format("\nBox {:04} holds code", i);
      request.max_tokens = 6;
      const std::string text = engine->run(request).value().text;
      right[type] += text.substr(0, text.find('.')) == " " + code(i);
    }
  }
  std::printf("  right of %d: f16 %d, bf16 %d, int8 %d\n", kFacts, right[KvStorage::kF16],
              right[KvStorage::kBF16], right[KvStorage::kI8]);
  if (right[KvStorage::kF16] < kFacts / 4) GTEST_SKIP() << "this model looks nothing up";
  EXPECT_GE(right[KvStorage::kBF16], right[KvStorage::kF16] - 2);
  EXPECT_GE(right[KvStorage::kI8], right[KvStorage::kF16] - 2);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, ::testing::Values("smollm2-135m", "qwen2.5-coder-0.5b"),
                         [](const auto& test) {
                           std::string name = test.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace rhapsode
