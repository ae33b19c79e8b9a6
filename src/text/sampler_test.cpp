#include "text/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "support/test_models.h"

namespace rhapsode::text {
namespace {

using ::testing::HasSubstr;

class SamplerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (auto loaded = Tokenizer::load(test::model_path("smollm2-135m")); loaded.ok()) tokenizer_ = *loaded;
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  const Tokenizer& tokenizer() { return *tokenizer_; }

  std::unique_ptr<Sampler> make(const SamplingOptions& options) {
    auto sampler = Sampler::make(tokenizer(), options);
    if (!sampler.ok()) throw std::runtime_error(sampler.error().message);
    return *std::move(sampler);
  }

  std::string make_error(const SamplingOptions& options) {
    auto sampler = Sampler::make(tokenizer(), options);
    return sampler.ok() ? "made" : sampler.error().message;
  }

  int32_t token(const std::string& text) {
    auto ids = tokenizer().encode(text);
    EXPECT_EQ(ids->size(), 1u) << text;
    return ids->front();
  }

  // Everything impossible but the given tokens, with their probabilities.
  std::vector<float> distribution(const std::map<int32_t, double>& probabilities) {
    std::vector<float> logits(static_cast<size_t>(tokenizer().size()),
                              -std::numeric_limits<float>::infinity());
    for (const auto& [id, p] : probabilities)
      logits[static_cast<size_t>(id)] = static_cast<float>(std::log(p));
    return logits;
  }

  std::vector<float> noise(uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> logits(static_cast<size_t>(tokenizer().size()));
    for (float& x : logits) x = static_cast<float>(random() >> 8) / (1 << 22) - 2;
    return logits;
  }

  std::map<int32_t, int> draws(const SamplingOptions& options, const std::vector<float>& logits, int count) {
    auto sampler = make(options);
    std::map<int32_t, int> seen;
    for (int i = 0; i < count; ++i) {
      auto drawn = sampler->sample(logits);
      EXPECT_TRUE(drawn.ok());
      ++seen[*drawn];
    }
    return seen;
  }

  // Random logits and a grammar: what it forces out, up to the end of generation.
  std::string forced(const SamplingOptions& options, uint32_t noise_seed, int most = 200) {
    auto sampler = make(options);
    std::string text;
    for (int i = 0; i < most; ++i) {
      auto id = sampler->sample(noise(noise_seed + static_cast<uint32_t>(i)));
      if (!id.ok()) return "error: " + id.error().message;
      if (Status status = sampler->accept(*id); !status.ok()) return "error: " + status.error().message;
      if (tokenizer().is_end_of_generation(*id)) return text;
      text += tokenizer().piece(*id);
    }
    return text + "...";
  }

  static std::shared_ptr<const Tokenizer> tokenizer_;
};

std::shared_ptr<const Tokenizer> SamplerTest::tokenizer_;

const std::map<int32_t, double> kFour = {{10, 0.5}, {20, 0.3}, {30, 0.15}, {40, 0.05}};

TEST_F(SamplerTest, GreedyTakesTheLikeliestAndTheLowestIdOnTies) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto sampler = make({});
  EXPECT_EQ(*sampler->sample(distribution(kFour)), 10);
  EXPECT_EQ(*sampler->sample(distribution({{77, 0.4}, {33, 0.4}, {55, 0.2}})), 33);
}

TEST_F(SamplerTest, DrawsFollowTheDistribution) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const auto seen = draws({.temperature = 1, .seed = 5}, distribution(kFour), 4000);
  for (const auto& [id, p] : kFour) EXPECT_NEAR(seen.at(id) / 4000.0, p, 0.035) << id;
}

TEST_F(SamplerTest, TemperatureSharpensAndFlattens) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const auto cold = draws({.temperature = 0.5f, .seed = 5}, distribution({{1, 0.75}, {2, 0.25}}), 4000);
  EXPECT_NEAR(cold.at(1) / 4000.0, 0.9, 0.03);
  const auto hot = draws({.temperature = 1000, .seed = 5}, distribution({{1, 0.99}, {2, 0.01}}), 4000);
  EXPECT_NEAR(hot.at(1) / 4000.0, 0.5, 0.04);
}

TEST_F(SamplerTest, TopKTopPAndMinPKeepWhatTheySay) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const std::vector<float> logits = distribution(kFour);
  const auto kept = [&](SamplingOptions options) {
    options.temperature = 5;
    std::set<int32_t> ids;
    for (const auto& [id, count] : draws(options, logits, 400)) ids.insert(id);
    return ids;
  };
  EXPECT_EQ(kept({}), (std::set<int32_t>{10, 20, 30, 40}));
  EXPECT_EQ(kept({.top_k = 2}), (std::set<int32_t>{10, 20}));
  EXPECT_EQ(kept({.top_p = 0.7f}), (std::set<int32_t>{10, 20}));  // 0.5 is not enough, 0.8 is
  EXPECT_EQ(kept({.top_p = 0.9f}), (std::set<int32_t>{10, 20, 30}));
  EXPECT_EQ(kept({.min_p = 0.25f}), (std::set<int32_t>{10, 20, 30}));  // at least a quarter of 0.5
  EXPECT_EQ(kept({.min_p = 0.5f}), (std::set<int32_t>{10, 20}));
  EXPECT_EQ(kept({.min_p = 1}), (std::set<int32_t>{10}));
}

TEST_F(SamplerTest, TheSameSeedGivesTheSameTokensAndAnotherOnesDiffer) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const auto sequence = [&](uint32_t seed) {
    auto sampler = make({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids;
    for (uint32_t i = 0; i < 20; ++i) ids.push_back(*sampler->sample(noise(i)));
    return ids;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
  EXPECT_EQ(sequence(LLAMA_DEFAULT_SEED), sequence(LLAMA_DEFAULT_SEED));
}

TEST_F(SamplerTest, RepetitionPenaltyIsLlamasAndItsWindowHolds) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::vector<float> logits(static_cast<size_t>(tokenizer().size()), -9.0f);
  logits[5] = 2.0f;
  logits[6] = 1.5f;
  logits[7] = -1.0f;
  auto sampler = make({.repetition_penalty = 2, .repetition_window = 2});
  sampler->observe(std::vector<int32_t>{5, -4, 1 << 30});
  EXPECT_EQ(*sampler->sample(logits), 6);  // 5 has 2 / 2
  ASSERT_TRUE(sampler->accept(6).ok());
  EXPECT_EQ(*sampler->sample(logits), 5);  // 1 against 0.75
  ASSERT_TRUE(sampler->accept(7).ok());    // 5 leaves the window
  EXPECT_EQ(*sampler->sample(logits), 5);
  logits[5] = logits[6] = -9.0f;
  EXPECT_EQ(*sampler->sample(logits), 7);  // -2, still the highest
  auto all = make({.repetition_penalty = 2, .repetition_window = -1});
  logits[5] = 2.0f;
  logits[6] = 1.5f;
  all->observe(std::vector<int32_t>{5});
  all->observe(std::vector<int32_t>(1000, 8));
  EXPECT_EQ(*all->sample(logits), 6);
}

TEST_F(SamplerTest, PenaltyAgreesWithLibllamas) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  llama_sampler* reference = llama_sampler_init_penalties(tokenizer().size(), 8, 1.7f, 0, 0);
  auto sampler = make({.repetition_penalty = 1.7f, .repetition_window = 8});
  std::mt19937 random(4);
  for (uint32_t step = 0; step < 40; ++step) {
    std::vector<float> logits = noise(step);
    for (int id = 100; id < 110; ++id) logits[static_cast<size_t>(id)] += 12;
    std::vector<llama_token_data> candidates;
    for (int32_t id = 0; id < tokenizer().size(); ++id)
      candidates.push_back({id, logits[static_cast<size_t>(id)], 0});
    llama_token_data_array list{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(reference, &list);
    const auto best = std::max_element(candidates.begin(), candidates.end(),
                                       [](const auto& a, const auto& b) { return a.logit < b.logit; });
    auto chosen = sampler->sample(logits);
    ASSERT_TRUE(chosen.ok());
    ASSERT_EQ(*chosen, best->id) << step;
    llama_sampler_accept(reference, *chosen);
    ASSERT_TRUE(sampler->accept(*chosen).ok());
  }
  llama_sampler_free(reference);
}

TEST_F(SamplerTest, GrammarForcesItsTextGreedyAndDrawn) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const std::string grammar = "root ::= \"The answer is \" (\"yes\" | \"no\") \".\"";
  for (const float temperature : {0.0f, 1.0f}) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      const std::string text =
          forced({.temperature = temperature, .seed = seed, .grammar = grammar}, 100 * seed);
      EXPECT_TRUE(text == "The answer is yes." || text == "The answer is no.") << text;
    }
  }
  EXPECT_EQ(forced({.grammar = "root ::= \"ёжик 😺 数\""}, 7), "ёжик 😺 数");
}

TEST_F(SamplerTest, GrammarTakesTheLikeliestAllowedToken) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto sampler = make({.grammar = "root ::= [0-9]+"});
  std::vector<float> logits = noise(3);
  logits[static_cast<size_t>(token("7"))] = 5.0f;
  for (const char* digit : {"0", "1", "2", "3", "4", "5", "6", "8", "9"})
    logits[static_cast<size_t>(token(digit))] = 1.0f;
  EXPECT_FALSE(sampler->may_end());
  ASSERT_EQ(tokenizer().piece(*sampler->sample(logits)), "7");
  ASSERT_TRUE(sampler->accept(token("7")).ok());
  EXPECT_TRUE(sampler->may_end());
}

TEST_F(SamplerTest, JsonSchemasGiveJsonThatFits) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const std::string schema =
      R"({"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer",
      "minimum": 0, "maximum": 99}}, "required": ["kind", "age"], "additionalProperties": false})";
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const std::string text = forced({.json_schema = schema}, 1000 + seed);
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_TRUE(value["kind"] == "cat" || value["kind"] == "dog") << text;
    EXPECT_TRUE(value["age"].is_number_integer()) << text;
  }
  EXPECT_EQ(make_error({.json_schema = "{}"}), "made");
}

TEST_F(SamplerTest, AGrammarThatNoTokenFitsIsAnError) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  for (const float temperature : {0.0f, 1.0f}) {
    auto sampler = make({.temperature = temperature, .grammar = "root ::= \"\\x01\" | \"\\x13\""});
    std::vector<float> logits = distribution({{token("cat"), 1.0}});  // all that could fit is impossible
    auto sampled = sampler->sample(logits);
    ASSERT_FALSE(sampled.ok());
    EXPECT_THAT(sampled.error().message, HasSubstr("as the grammar asks"));
  }
}

TEST_F(SamplerTest, AcceptRefusesWhatTheGrammarForbidsAndGoesOn) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto sampler = make({.grammar = "root ::= \"cat\""});
  EXPECT_FALSE(sampler->accept(token("dog")).ok());
  EXPECT_FALSE(sampler->accept(tokenizer().eos()).ok());
  EXPECT_FALSE(sampler->accept(-1).ok());
  EXPECT_TRUE(sampler->accept(token("cat")).ok());
  EXPECT_FALSE(sampler->accept(token("cat")).ok());
  EXPECT_TRUE(sampler->accept(tokenizer().eos()).ok());
}

TEST_F(SamplerTest, ClonesGoOnAloneFromTheSameState) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto original =
      make({.temperature = 1, .repetition_penalty = 1.2f, .seed = 9, .grammar = "root ::= [a-z ]{40,80}"});
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(original->accept(*original->sample(noise(i))).ok());
  auto copy = original->clone();
  for (uint32_t i = 10; i < 18 && !original->may_end(); ++i) {
    auto a = original->sample(noise(i));
    auto b = copy->sample(noise(i));
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(*a, *b);
    ASSERT_TRUE(original->accept(*a).ok());
    ASSERT_TRUE(copy->accept(*b).ok());
  }
  original.reset();
  EXPECT_TRUE(copy->sample(noise(1)).ok());
}

TEST_F(SamplerTest, BrokenLogitsAreErrors) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  for (const float temperature : {0.0f, 1.0f}) {
    auto sampler = make({.temperature = temperature});
    std::vector<float> logits = noise(1);
    EXPECT_TRUE(sampler->sample(logits).ok());
    EXPECT_FALSE(sampler->sample(std::span(logits).first(100)).ok());
    logits[49000] = std::nanf("");
    EXPECT_FALSE(sampler->sample(logits).ok());
    EXPECT_FALSE(sampler->sample(distribution({})).ok());
  }
}

TEST_F(SamplerTest, PaddingBehindTheVocabularyIsNeverChosen) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::vector<float> logits = noise(1);
  auto expected = make({})->sample(logits);
  logits.resize(logits.size() + 64, 1e9f);
  EXPECT_EQ(*make({})->sample(logits), *expected);
}

TEST_F(SamplerTest, BadOptionsAndGrammarsAreErrorsThatSayWhy) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  EXPECT_THAT(make_error({.temperature = -1}), HasSubstr("temperature"));
  EXPECT_THAT(make_error({.temperature = std::nanf("")}), HasSubstr("temperature"));
  EXPECT_THAT(make_error({.temperature = 1e-20f}), HasSubstr("temperature"));
  EXPECT_THAT(make_error({.top_k = -1}), HasSubstr("top_k"));
  EXPECT_THAT(make_error({.top_p = 0}), HasSubstr("top_p"));
  EXPECT_THAT(make_error({.min_p = 2}), HasSubstr("min_p"));
  EXPECT_THAT(make_error({.repetition_penalty = 0}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(make_error({.repetition_window = -2}), HasSubstr("repetition_window"));
  EXPECT_THAT(make_error({.grammar = "root ::= x", .json_schema = "{}"}), HasSubstr("exclude"));
  EXPECT_THAT(make_error({.grammar = "root ::= x"}), HasSubstr("'x' is used but never defined"));
  EXPECT_THAT(make_error({.grammar = "root ::= root \"a\""}), HasSubstr("left recursion"));
  EXPECT_THAT(make_error({.grammar = "root ::= <no such token>"}), HasSubstr("not one token"));
  EXPECT_THAT(make_error({.json_schema = "{"}), HasSubstr("not valid JSON"));
  EXPECT_THAT(make_error({.json_schema = R"({"$ref": "https://example.com/x"})"}), HasSubstr("$ref"));
  EXPECT_THAT(make_error({.json_schema = R"({"type": "string", "pattern": "^\\d+$"})"}), HasSubstr("[0-9]"));
  EXPECT_THAT(make_error({.json_schema = R"({"type": "string", "pattern": "a"})"}), HasSubstr("begin with"));
  EXPECT_EQ(make_error({.json_schema = R"({"type": "string", "pattern": "^[0-9]{2,3}(a|b)?$"})"}), "made");
  EXPECT_THAT(make_error({.json_schema = std::string(5000, '[') + std::string(5000, ']')}),
              HasSubstr("deeper"));
}

}  // namespace
}  // namespace rhapsode::text
