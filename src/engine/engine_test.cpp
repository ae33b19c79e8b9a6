// The engine through its public face, on tiny random models: what a request may expect whatever happens
// around it.
#include "rhapsode/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "support/tiny_models.h"

namespace rhapsode {
namespace {

constexpr char kModel[] = "llama-f32";

std::vector<int32_t> numbered(int count, int from = 11) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = 20 + (from * 31 + i * 37) % 200;
  return tokens;
}

Request tokens_request(std::vector<int32_t> tokens, int max_tokens) {
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  request.top_logprobs = 0;
  return request;
}

std::vector<int32_t> ids(const Response& response) {
  std::vector<int32_t> tokens;
  for (const auto& generated : response.tokens) tokens.push_back(generated.token);
  return tokens;
}

// Bytes of everything that was predicted: tokens and their exact log-probabilities.
std::vector<float> signature(const Response& response) {
  std::vector<float> values;
  for (const auto& generated : response.tokens) {
    values.push_back(static_cast<float>(generated.token));
    values.push_back(generated.logprob);
  }
  return values;
}

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RH_REQUIRE_TINY_MODEL(path, kModel);
    options_.model = path;
    options_.threads = 2;
    options_.kv_cap_bytes = 16 << 20;
  }
  std::unique_ptr<Engine> open() {
    auto engine = Engine::open(options_);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  static Response run(Engine& engine, Request request) {
    auto response = engine.run(std::move(request));
    EXPECT_TRUE(response.ok()) << (response.ok() ? "" : response.error().message);
    return response.ok() ? *response : Response{};
  }
  static std::string refusal(Engine& engine, Request request) {
    auto response = engine.run(std::move(request));
    EXPECT_FALSE(response.ok());
    return response.ok() ? "" : response.error().message;
  }

  EngineOptions options_;
};

TEST_F(EngineTest, GeneratesAndCounts) {
  auto engine = open();
  const Response response = run(*engine, tokens_request(numbered(100), 20));
  EXPECT_EQ(response.tokens.size(), 20u);
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_EQ(response.usage.prompt_tokens, 100);
  EXPECT_EQ(response.usage.cached_tokens, 0);
  EXPECT_EQ(response.usage.evaluated_tokens, 100);
  EXPECT_EQ(response.usage.generated_tokens, 20);
  EXPECT_GT(response.timing.ttft_ms, 0);
}

TEST_F(EngineTest, RepeatedRequestsReuseAllButOneToken) {  // S7, C15
  auto engine = open();
  const Response cold = run(*engine, tokens_request(numbered(150), 8));
  for (int i = 0; i < 2; ++i) {
    const Response warm = run(*engine, tokens_request(numbered(150), 8));
    EXPECT_EQ(warm.usage.cached_tokens, 149);
    EXPECT_EQ(warm.usage.evaluated_tokens, 1);
    EXPECT_EQ(ids(warm), ids(cold));
  }
  const Response shorter = run(*engine, tokens_request(numbered(90), 8));
  EXPECT_EQ(shorter.usage.cached_tokens, 89);
  EXPECT_EQ(shorter.tokens.size(), 8u);
}

TEST_F(EngineTest, ALongerCachedPromptDoesNotLeakIntoAShorterOne) {  // S5
  auto engine = open();
  const auto a = numbered(130);
  auto ab = a;
  for (int32_t token : numbered(70, 3)) ab.push_back(token);
  auto ad = a;
  for (int32_t token : numbered(40, 5)) ad.push_back(token);
  options_.prefix_cache = false;
  auto solo = open();
  const auto solo_a = ids(run(*solo, tokens_request(a, 8)));
  const auto solo_ad = ids(run(*solo, tokens_request(ad, 8)));
  run(*engine, tokens_request(ab, 8));
  EXPECT_EQ(ids(run(*engine, tokens_request(a, 8))), solo_a);
  const Response response = run(*engine, tokens_request(ad, 8));
  EXPECT_EQ(ids(response), solo_ad);
  EXPECT_EQ(response.usage.cached_tokens, 130);
}

TEST_F(EngineTest, SharedStartsShorterThanAPageHit) {  // C10
  auto engine = open();
  for (int question = 0; question < 4; ++question) {
    auto prompt = numbered(50);
    for (int32_t token : numbered(10, 100 + question)) prompt.push_back(token);
    const Response response = run(*engine, tokens_request(prompt, 2));
    if (question > 0) {
      EXPECT_GE(response.usage.cached_tokens, 50);
    }
  }
}

TEST_F(EngineTest, TheReasonOfAMissIsTold) {  // C4
  auto engine = open();
  auto prompt = numbered(80);
  EXPECT_NE(run(*engine, tokens_request(prompt, 1)).usage.cache_miss.find("token 0"), std::string::npos);
  prompt[33] = 7;
  const Response response = run(*engine, tokens_request(prompt, 1));
  EXPECT_EQ(response.usage.cached_tokens, 33);
  EXPECT_NE(response.usage.cache_miss.find("first difference at token 33"), std::string::npos)
      << response.usage.cache_miss;
}

// Rung 2 and case S6: with deterministic mode on, no arrangement changes a byte.
TEST_F(EngineTest, DeterministicModeGivesTheSameBytesHoweverItIsRun) {
  options_.deterministic = true;
  std::vector<std::vector<float>> expected;
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(tokens_request(numbered(20 + 67 * i, i / 2), 12));
#if defined(__SANITIZE_THREAD__)
  // ggml's own threads, which this build uses instead of OpenMP's, spin at barriers: no more of them than
  // cores.
  const std::vector<int> thread_counts = {1, 2};
#else
  const std::vector<int> thread_counts = {1, 2, 3};
#endif
  for (const bool cache : {false, true}) {
    for (const int threads : thread_counts) {
      for (const int batch : {5, 16, 512}) {
        options_.prefix_cache = cache;
        options_.threads = threads;
        options_.batch_tokens = batch;
        auto engine = open();
        ASSERT_TRUE(engine);
        std::vector<Generation> generations;
        for (const Request& request : requests) generations.push_back(engine->submit(request).value());
        std::vector<std::vector<float>> got;
        for (Generation& generation : generations) got.push_back(signature(generation.wait().value()));
        if (expected.empty()) expected = got;
        ASSERT_EQ(got, expected) << "cache " << cache << ", threads " << threads << ", batch " << batch;
        // Again, now from the cache, one at a time.
        for (size_t i = 0; i < requests.size(); ++i)
          ASSERT_EQ(signature(run(*engine, requests[i])), expected[i]);
      }
    }
  }
}

TEST_F(EngineTest, ManyThreadsWithRandomCancelsEachGetTheirSoloResult) {  // V11
  options_.deterministic = true;
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(tokens_request(numbered(10 + 25 * i, i % 3), 6));
  std::vector<std::vector<float>> solo;
  {
    options_.prefix_cache = false;
    auto engine = open();
    for (const Request& request : requests) solo.push_back(signature(run(*engine, request)));
  }
  options_.prefix_cache = true;
  auto engine = open();
  std::atomic<int> wrong{0}, finished{0}, cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 20; ++i) {
        const size_t which = random() % requests.size();
        Generation generation = engine->submit(requests[which]).value();
        if (random() % 3 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
          generation.cancel();
        }
        const Response response = generation.wait().value();
        const auto got = signature(response);
        const bool is_prefix =
            got.size() <= solo[which].size() && std::equal(got.begin(), got.end(), solo[which].begin());
        const bool complete = response.finish == FinishReason::kLength;
        wrong += !is_prefix || (complete && got != solo[which]);
        (complete ? finished : cancelled) += 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(finished + cancelled, 160);
  EXPECT_GT(finished, 60);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.waiting, 0);
}

TEST_F(EngineTest, ContextLimitIsExact) {  // G1, G2, G3
  options_.context_tokens = 200;
  auto engine = open();
  const Response last = run(*engine, tokens_request(numbered(199), 50));
  EXPECT_EQ(last.tokens.size(), 1u);
  EXPECT_EQ(last.finish, FinishReason::kContext);
  for (int count : {200, 201, 5000}) {
    const std::string message = refusal(*engine, tokens_request(numbered(count), 50));
    EXPECT_NE(message.find(std::to_string(count)), std::string::npos) << message;
    EXPECT_NE(message.find("199"), std::string::npos) << message;
  }
  const Response filled = run(*engine, tokens_request(numbered(150), 100));  // G4
  EXPECT_EQ(filled.tokens.size(), 50u);
  EXPECT_EQ(filled.finish, FinishReason::kContext);
  Request cut = tokens_request(numbered(500), 40);
  cut.truncate_prompt = true;
  const Response truncated = run(*engine, cut);
  EXPECT_EQ(truncated.usage.prompt_tokens + truncated.usage.truncated_tokens, 500);
  EXPECT_EQ(truncated.tokens.size(), 40u);
}

TEST_F(EngineTest, ARolledContextGoesOnWithPositionsInRange) {
  options_.context_tokens = 256;
  auto engine = open();
  Request request = tokens_request(numbered(100), 700);
  request.roll_context = true;
  const Response response = run(*engine, request);
  EXPECT_EQ(response.tokens.size(), 700u);
  EXPECT_EQ(response.finish, FinishReason::kLength);
  EXPECT_GE(response.usage.rolled_tokens, 500);
}

TEST_F(EngineTest, SparseDecodeIsExactWithinItsBudgetAndSaysSoBeyond) {
  options_.context_tokens = 2048;
  options_.deterministic = true;
  auto dense = open();
  const Response full = run(*dense, tokens_request(numbered(600), 40));
  options_.sparse_decode.budget_tokens = 1024;
  auto roomy = open();
  const Response within = run(*roomy, tokens_request(numbered(600), 40));
  EXPECT_EQ(signature(within), signature(full));
  EXPECT_EQ(within.usage.sparse_tokens, 0);

  options_.sparse_decode.budget_tokens = 256;
  auto engine = open();
  const Response sparse = run(*engine, tokens_request(numbered(600), 40));
  // The first token comes from the prompt's own pass, which reads everything.
  EXPECT_EQ(sparse.usage.sparse_tokens, 39);
  EXPECT_EQ(sparse.tokens.front().logprob, full.tokens.front().logprob);
  EXPECT_NE(signature(sparse), signature(full)) << "a quarter of the context cannot give the same bytes";
  EXPECT_EQ(signature(run(*engine, tokens_request(numbered(600), 40))), signature(sparse));
  Request exact = tokens_request(numbered(600), 40);
  exact.decode_budget_tokens = 0;
  const Response asked = run(*engine, exact);
  EXPECT_EQ(signature(asked), signature(full));
  EXPECT_EQ(asked.usage.sparse_tokens, 0);
  Request wider = tokens_request(numbered(600), 40);
  wider.decode_budget_tokens = 620;
  EXPECT_EQ(run(*engine, wider).usage.sparse_tokens, 19);
}

TEST_F(EngineTest, SparseDecodeTakesEveryKindOfBoundAndManyRequestsAtOnce) {
  options_.context_tokens = 2048;
  for (const KeyBounds bounds : {KeyBounds::kMean, KeyBounds::kBox, KeyBounds::kBall}) {
    for (const int group : {16, 32, 64}) {
      options_.sparse_decode = {256, group, bounds, group == 32};
      auto engine = open();
      std::vector<Generation> generations;
      for (int i = 0; i < 4; ++i) {
        generations.push_back(engine->submit(tokens_request(numbered(400 + 100 * i, i / 2), 20)).value());
      }
      for (Generation& generation : generations) {
        const Response response = generation.wait().value();
        EXPECT_EQ(response.tokens.size(), 20u);
        EXPECT_EQ(response.usage.sparse_tokens, 19);
      }
    }
  }
}

TEST_F(EngineTest, WhatSparseStepsComputedIsNeverServedAsExact) {
  options_.context_tokens = 2048;
  options_.sparse_decode.budget_tokens = 256;
  auto engine = open();
  const Response response = run(*engine, tokens_request(numbered(600), 100));
  auto longer = numbered(600);
  for (const int32_t token : ids(response)) longer.push_back(token);
  EXPECT_EQ(run(*engine, tokens_request(longer, 1)).usage.cached_tokens, 600);
}

TEST_F(EngineTest, DecodeBudgetsThatCannotBeServedAreRefused) {
  auto engine = open();
  Request request = tokens_request(numbered(40), 2);
  request.decode_budget_tokens = 512;
  EXPECT_NE(refusal(*engine, request).find("opened without sparse decode"), std::string::npos);
  request.decode_budget_tokens = 100;
  EXPECT_NE(refusal(*engine, request).find("at least 256"), std::string::npos);
  options_.sparse_decode.budget_tokens = 100;
  EXPECT_FALSE(Engine::open(options_).ok());
  options_.sparse_decode = {1024, 48, KeyBounds::kBox, false};
  EXPECT_FALSE(Engine::open(options_).ok());
}

TEST_F(EngineTest, KeyBoundsCountUnderTheKvCap) {
  auto probe = open();
  options_.kv_cap_bytes = 2000 * probe->model().kv_bytes_per_token;
  options_.context_tokens = 4096;
  options_.sparse_decode.budget_tokens = 256;
  auto engine = open();
  // Boxes of sixteen tokens take a sixteenth of what float16 pages do: 2,000 tokens no longer fit.
  EXPECT_NE(refusal(*engine, tokens_request(numbered(1980), 1)).find("--kv-cap"), std::string::npos);
  EXPECT_EQ(run(*engine, tokens_request(numbered(1800), 20)).tokens.size(), 20u);
  EXPECT_LE(engine->stats().kv_used_bytes, options_.kv_cap_bytes);
}

TEST_F(EngineTest, PrefillOnlyWarmsTheCache) {  // G9
  auto engine = open();
  const Response warmed = run(*engine, tokens_request(numbered(120), 0));
  EXPECT_TRUE(warmed.text.empty());
  EXPECT_TRUE(warmed.tokens.empty());
  EXPECT_GE(run(*engine, tokens_request(numbered(120), 1)).usage.cached_tokens, 119);
}

TEST_F(EngineTest, APoolTooSmallForAllLetsEachFinishInTurn) {  // V5
  options_.deterministic = true;
  auto probe = open();
  const uint64_t token_bytes = probe->model().kv_bytes_per_token;
  options_.kv_cap_bytes = 1024 * token_bytes;
  options_.prefix_cache = false;
  auto solo = open();
  std::vector<Request> requests;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(tokens_request(numbered(400, 50 + i), 200));
    expected.push_back(ids(run(*solo, requests.back())));
  }
  auto engine = open();
  std::vector<Generation> generations;
  for (const Request& request : requests) generations.push_back(engine->submit(request).value());
  for (int i = 0; i < 4; ++i) {
    const Response response = generations[i].wait().value();
    EXPECT_EQ(response.finish, FinishReason::kLength);
    EXPECT_EQ(ids(response), expected[i]) << "put back into the queue, then taken up again";
  }
  EXPECT_GT(engine->stats().preemptions, 0u);
  EXPECT_EQ(engine->stats().kv_used_bytes, 0u);
  EXPECT_EQ(run(*engine, tokens_request(numbered(900), 90)).tokens.size(), 90u)
      << "alone, one may use it all";
  EXPECT_NE(refusal(*engine, tokens_request(numbered(1100), 10)).find("--kv-cap"), std::string::npos);
}

TEST_F(EngineTest, TheKvCapHoldsOverManyPrompts) {  // C7
  auto probe = open();
  options_.kv_cap_bytes = 2000 * probe->model().kv_bytes_per_token;
  auto engine = open();
  for (int i = 0; i < 30; ++i) {
    run(*engine, tokens_request(numbered(300, i), 4));
    EXPECT_LE(engine->stats().kv_used_bytes, options_.kv_cap_bytes);
  }
  EXPECT_GT(engine->stats().evictions, 0u);
  EXPECT_EQ(run(*engine, tokens_request(numbered(300, 29), 4)).usage.cached_tokens, 299);
}

TEST_F(EngineTest, AHelperRequestDoesNotDisturbTheMainConversation) {  // C5
  auto engine = open();
  auto main_prompt = numbered(400);
  run(*engine, tokens_request(main_prompt, 4));
  auto helper = numbered(200);
  helper.push_back(21);
  run(*engine, tokens_request(helper, 4));
  main_prompt.push_back(22);
  EXPECT_LE(run(*engine, tokens_request(main_prompt, 4)).usage.evaluated_tokens, 40);
}

TEST_F(EngineTest, PromptsThatStartAlikeAreComputedOnce) {
  auto engine = open();
  std::vector<Generation> generations;
  for (int i = 0; i < 6; ++i) {
    auto prompt = numbered(300);
    prompt.push_back(30 + i);
    generations.push_back(engine->submit(tokens_request(prompt, 3)).value());
  }
  int evaluated = 0;
  for (auto& generation : generations) evaluated += generation.wait().value().usage.evaluated_tokens;
  EXPECT_LT(evaluated, 300 + 6 * 70);
}

TEST_F(EngineTest, StopStringsNeverLeak) {  // T3
  auto engine = open();
  Request request = tokens_request(numbered(30), 60);
  request.sampling.grammar = "root ::= \"red green blue\"";
  request.stop = {"een bl"};
  std::string streamed;
  request.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  const Response response = run(*engine, request);
  EXPECT_EQ(response.text, "red gr");
  EXPECT_EQ(streamed, "red gr");
  EXPECT_EQ(response.finish, FinishReason::kStopString);
}

TEST_F(EngineTest, CharactersSplitOverTokensStreamWhole) {  // T1
  auto engine = open();
  Request request = tokens_request(numbered(30), 80);
  request.ignore_end = false;
  request.sampling.grammar = "root ::= \"ёжик 😺 数\"";
  std::vector<std::string> pieces;
  request.on_text = [&](std::string_view text) {
    pieces.emplace_back(text);
    return true;
  };
  const Response response = run(*engine, request);
  EXPECT_EQ(response.text, "ёжик 😺 数");
  std::string joined;
  for (const std::string& piece : pieces) {
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
    EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0, 0x80) << "a piece starts inside a character";
    joined += piece;
  }
  EXPECT_EQ(joined, response.text);
}

TEST_F(EngineTest, ReturningFalseOrThrowingFromOnTextCancelsThatRequestOnly) {
  auto engine = open();
  Request stopping = tokens_request(numbered(30), 200);
  stopping.on_text = [](std::string_view) { return false; };
  Request throwing = tokens_request(numbered(31), 200);
  throwing.on_text = [](std::string_view) -> bool { throw std::runtime_error("caller's bug"); };
  Generation first = engine->submit(stopping).value();
  Generation second = engine->submit(throwing).value();
  Generation third = engine->submit(tokens_request(numbered(32), 40)).value();
  EXPECT_EQ(first.wait().value().finish, FinishReason::kCancelled);
  EXPECT_EQ(second.wait().value().finish, FinishReason::kCancelled);
  EXPECT_EQ(third.wait().value().tokens.size(), 40u);
}

TEST_F(EngineTest, SeedsRepeatAndDiffer) {
  auto engine = open();
  Request request = tokens_request(numbered(40), 30);
  request.sampling.temperature = 1.0f;
  request.sampling.seed = 5;
  const auto first = ids(run(*engine, request));
  EXPECT_EQ(ids(run(*engine, request)), first);
  request.sampling.seed = 6;
  EXPECT_NE(ids(run(*engine, request)), first);
}

TEST_F(EngineTest, PromptLogprobsAgreeWithGeneratedOnes) {
  options_.deterministic = true;
  auto engine = open();
  const Response generated = run(*engine, tokens_request(numbered(70), 10));
  Request scoring = tokens_request(numbered(70), 0);
  for (int32_t token : ids(generated)) scoring.tokens.push_back(token);
  scoring.prompt_logprobs = true;
  const Response scored = run(*engine, scoring);
  ASSERT_EQ(scored.prompt_logprobs.size(), 79u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(scored.prompt_logprobs[69 + i], generated.tokens[i].logprob);
}

TEST_F(EngineTest, LogitsAreKeptOnRequest) {
  auto engine = open();
  Request request = tokens_request(numbered(20), 3);
  request.logits = true;
  for (const auto& generated : run(*engine, request).tokens) {
    ASSERT_EQ(generated.logits.size(), static_cast<size_t>(engine->model().vocabulary));
    const auto best = std::max_element(generated.logits.begin(), generated.logits.end());
    EXPECT_EQ(best - generated.logits.begin(), generated.token);
  }
}

TEST_F(EngineTest, MixedWeightsPrefillLikeTheCopyAndDecodeLikeTheShipped) {
  RH_REQUIRE_TINY_MODEL(quantised, "llama-q8_0");
  options_.model = quantised;
  options_.cache_folder = std::filesystem::path(testing::TempDir()) / "mixed_weights";
  auto first_token = [&](WeightFormat weights, int prompt) {
    options_.weights = weights;
    auto engine = open();
    Request request = tokens_request(numbered(prompt), 1);
    request.logits = true;
    return run(*engine, request).tokens.at(0).logits;
  };
  EXPECT_EQ(first_token(WeightFormat::kMixed, 64), first_token(WeightFormat::kBF16, 64));
  EXPECT_EQ(first_token(WeightFormat::kMixed, 8), first_token(WeightFormat::kShipped, 8));
  EXPECT_NE(first_token(WeightFormat::kBF16, 8), first_token(WeightFormat::kShipped, 8));
}

TEST_F(EngineTest, MalformedRequestsAreRefusedAndTheNextOneWorks) {
  auto engine = open();
  EXPECT_NE(refusal(*engine, Request{}).find("exactly one"), std::string::npos);
  EXPECT_NE(refusal(*engine, tokens_request({1 << 30}, 4)).find("vocabulary"), std::string::npos);
  EXPECT_NE(refusal(*engine, tokens_request({-1}, 4)).find("vocabulary"), std::string::npos);
  EXPECT_NE(refusal(*engine, tokens_request(numbered(4), -1)).find("negative"), std::string::npos);
  Request grammar = tokens_request(numbered(4), 4);
  grammar.sampling.grammar = "root ::= (";
  EXPECT_FALSE(refusal(*engine, grammar).empty());
  Request stop = tokens_request(numbered(4), 4);
  stop.stop = {""};
  EXPECT_FALSE(refusal(*engine, stop).empty());
  EXPECT_EQ(run(*engine, tokens_request(numbered(10), 4)).tokens.size(), 4u);
}

TEST_F(EngineTest, ClosingTheEngineCancelsWhatIsInFlight) {
  auto engine = open();
  Request endless = tokens_request(numbered(50), 100000);
  endless.roll_context = true;
  Generation running = engine->submit(endless).value();
  Generation waiting = engine->submit(endless).value();
  engine.reset();
  EXPECT_EQ(running.wait().value().finish, FinishReason::kCancelled);
  EXPECT_EQ(waiting.wait().value().finish, FinishReason::kCancelled);
}

TEST_F(EngineTest, AdaptersChangeResultsAndNeverShareKv) {  // C8
  RH_REQUIRE_TINY_MODEL(adapter, "lora-llama-all");
  auto plain = open();
  const auto without = signature(run(*plain, tokens_request(numbered(60), 8)));
  options_.adapters = {{adapter, 1.0f}};
  auto adapted = open();
  const Response with = run(*adapted, tokens_request(numbered(60), 8));
  EXPECT_EQ(with.usage.cached_tokens, 0);
  EXPECT_NE(signature(with), without);
  options_.adapters = {{adapter, 0.5f}};
  auto half = open();
  EXPECT_NE(signature(run(*half, tokens_request(numbered(60), 8))), signature(with));
  options_.adapters = {{adapter, 0.25f}, {adapter, 0.25f}};
  auto twice = open();
  const auto two_quarters = run(*twice, tokens_request(numbered(60), 8));
  EXPECT_NEAR(two_quarters.tokens[0].logprob, run(*half, tokens_request(numbered(60), 8)).tokens[0].logprob,
              1e-3);
}

TEST_F(EngineTest, TraceNamesEveryStage) {
  options_.trace_file = std::filesystem::path(testing::TempDir()) / "engine_trace.json";
  auto engine = open();
  run(*engine, tokens_request(numbered(60), 4));
  engine.reset();
  std::ifstream file(options_.trace_file);
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const char* name :
       {"load", "tokenize", "queue", "prefill pass", "layers", "decode pass", "sample", "request"}) {
    EXPECT_NE(json.find(std::string("\"name\":\"") + name + "\""), std::string::npos) << name;
  }
}

TEST_F(EngineTest, OptionsAreCheckedAtOpening) {  // G8
  auto expect_refused = [&](const char* word) {
    auto engine = Engine::open(options_);
    ASSERT_FALSE(engine.ok());
    EXPECT_NE(engine.error().message.find(word), std::string::npos) << engine.error().message;
  };
  options_.context_tokens = 1 << 20;
  expect_refused("trained");
  options_.beyond_trained_context = true;
  EXPECT_TRUE(Engine::open(options_).ok());
  options_.kv_cap_bytes = 10;
  expect_refused("cap");
  options_.kv_cap_bytes = 1 << 20;
  options_.threads = -1;
  expect_refused("threads");
  options_.threads = 1;
  options_.model = "/nonexistent/model.gguf";
  expect_refused("model.gguf");
}

}  // namespace
}  // namespace rhapsode
