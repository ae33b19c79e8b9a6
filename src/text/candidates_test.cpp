// Tokens chosen from candidates against those of the whole row, and the whole row against libllama.
#include "text/candidates.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "support/test_models.h"
#include "text/sampler.h"

namespace rhapsode::text {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();
constexpr size_t kCount = 256;

struct OwnCandidates {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  double exp_sum = 0;
  bool all = false;

  Candidates view() const { return {tokens, logits, exp_sum, all, false}; }
};

OwnCandidates candidates_of(std::span<const float> row, size_t count = kCount) {
  OwnCandidates own;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != kImpossible) own.tokens.push_back(static_cast<int32_t>(i));
  }
  const auto logit = [&](int32_t token) { return row[static_cast<size_t>(token)]; };
  own.all = own.tokens.size() <= count;
  const auto end = own.tokens.begin() + static_cast<ptrdiff_t>(std::min(own.tokens.size(), count));
  std::partial_sort(own.tokens.begin(), end, own.tokens.end(), [&](int32_t a, int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  });
  for (const int32_t token : own.tokens) {
    own.exp_sum += std::exp(static_cast<double>(logit(token)) - static_cast<double>(logit(own.tokens[0])));
  }
  own.tokens.erase(end, own.tokens.end());
  for (const int32_t token : own.tokens) own.logits.push_back(logit(token));
  return own;
}

std::string describe(const SamplingOptions& o) {
  return fmt::format("temperature {} top_k {} top_p {} min_p {} penalty {} window {} seed {} grammar '{}'",
                     o.temperature, o.top_k, o.top_p, o.min_p, o.repetition_penalty, o.repetition_window,
                     o.seed, o.grammar);
}

enum class Kind { kSpread, kPeaked, kFlat, kTied, kFew, kEqual, kKinds };

class CandidatesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (auto loaded = Tokenizer::load(test::model_path("smollm2-135m")); loaded.ok()) tokenizer_ = *loaded;
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }

  static std::unique_ptr<Sampler> make(const SamplingOptions& options) {
    auto sampler = Sampler::make(*tokenizer_, options);
    if (!sampler.ok()) throw std::runtime_error(sampler.error().message);
    return *std::move(sampler);
  }

  static std::vector<float> row_of(Kind kind, std::mt19937& random) {
    static const std::vector<float> kNormal = [] {
      std::mt19937 own(1);
      std::normal_distribution<float> normal;
      std::vector<float> numbers(1 << 18);
      for (float& x : numbers) x = normal(own);
      return numbers;
    }();
    const auto normal = [&] { return kNormal[random() % kNormal.size()]; };
    std::vector<float> row(static_cast<size_t>(tokenizer_->size()));
    for (float& logit : row) logit = (kind == Kind::kFlat ? 0.3f : 2.5f) * normal() - 4;
    if (kind == Kind::kPeaked) {
      for (int i = 0; i < 30; ++i) row[random() % row.size()] = 8 + 5 * std::abs(normal());
    }
    if (kind == Kind::kTied) {
      for (float& logit : row) logit = std::round(logit);
    }
    if (kind == Kind::kEqual) std::fill(row.begin(), row.end(), 0.5f);
    if (kind == Kind::kFew) {
      const size_t few = 1 + random() % 300;
      std::vector<float> kept(row.size(), kImpossible);
      for (size_t i = 0; i < few; ++i) {
        const size_t token = random() % row.size();
        kept[token] = row[token];
      }
      row = std::move(kept);
    }
    return row;
  }

  // Some steps of a sequence, chosen twice; how often candidates decided.
  static int decided(const SamplingOptions& options, Kind kind, int steps, size_t count = kCount) {
    SCOPED_TRACE(fmt::format("{}, row kind {}", describe(options), static_cast<int>(kind)));
    auto whole = make(options);
    auto brief = make(options);
    std::mt19937 random(options.seed * 31 + static_cast<uint32_t>(kind));
    int decided = 0;
    for (int step = 0; step < steps; ++step) {
      const std::vector<float> row = row_of(kind, random);
      const OwnCandidates candidates = candidates_of(row, count);
      const auto expected = whole->sample(row);
      auto chosen = brief->sample(candidates.view());
      EXPECT_TRUE(chosen.ok());
      if (!expected.ok()) {  // a grammar's dead end is only known from the whole row
        EXPECT_FALSE(*chosen);
        EXPECT_FALSE(brief->sample(row).ok());
        return decided;
      }
      const int32_t token = *chosen ? **chosen : brief->sample(row).value();
      decided += *chosen ? 1 : 0;
      EXPECT_EQ(token, *expected) << "step " << step << (*chosen ? ", decided" : ", not decided");
      if (token != *expected) return decided;
      EXPECT_TRUE(whole->accept(token).ok());
      EXPECT_TRUE(brief->accept(token).ok());
      if (tokenizer_->is_end_of_generation(token) && !options.grammar.empty()) return decided;
    }
    return decided;
  }

  static std::shared_ptr<const Tokenizer> tokenizer_;
};

std::shared_ptr<const Tokenizer> CandidatesTest::tokenizer_;

const SamplingOptions kSettings[] = {
    {},
    {.temperature = 0.7f, .top_k = 1},
    {.temperature = 1.2f, .top_k = 40},
    {.temperature = 0.8f, .top_k = 256},
    {.temperature = 0.8f, .top_k = 300, .top_p = 0.6f},
    {.temperature = 1, .top_p = 0.1f},
    {.temperature = 1, .top_p = 0.9f},
    {.temperature = 1, .top_p = 0.999f},
    {.temperature = 1, .min_p = 0.3f},
    {.temperature = 2, .min_p = 0.01f},
    {.temperature = 1, .top_k = 50, .top_p = 0.8f, .min_p = 0.05f},
    {.temperature = 1, .top_p = 0.95f, .min_p = 0.1f},
    {.temperature = 1},
};

TEST_F(CandidatesTest, GiveTheWholeRowsTokenUnderEverySetting) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  for (SamplingOptions options : kSettings) {
    for (const float penalty : {1.0f, 1.4f, 30.0f, 0.8f}) {
      options.repetition_penalty = penalty;
      options.repetition_window = penalty == 1.4f ? -1 : 8;
      for (int kind = 0; kind < static_cast<int>(Kind::kKinds); ++kind) {
        ++options.seed;
        decided(options, static_cast<Kind>(kind), penalty == 1 ? 2 : 5);
        // Few candidates are often all penalised.
        decided(options, static_cast<Kind>(kind), 5, 4);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CandidatesTest, GiveTheWholeRowsTokenUnderAGrammar) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  int decided_steps = 0;
  for (SamplingOptions options : kSettings) {
    for (const char* grammar : {"root ::= [a-z ]{4,40}", "root ::= [0-9]{2,6}"}) {
      options.grammar = grammar;
      for (const float penalty : {1.0f, 1.3f}) {
        options.repetition_penalty = penalty;
        ++options.seed;
        decided_steps += decided(options, Kind::kSpread, 3) + decided(options, Kind::kPeaked, 3);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(decided_steps, 20);
}

// What the rules of candidates.h promise, and no more.
TEST_F(CandidatesTest, DecideExactlyWhereTheRulesSay) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  constexpr int kSteps = 6;
  EXPECT_EQ(decided({}, Kind::kTied, kSteps), kSteps);
  EXPECT_EQ(decided({}, Kind::kEqual, kSteps), kSteps);
  EXPECT_EQ(decided({.repetition_penalty = 1.5f}, Kind::kPeaked, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1, .top_k = 256}, Kind::kFlat, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1, .top_k = 256}, Kind::kEqual, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1, .top_k = 257}, Kind::kFlat, kSteps), 0);
  EXPECT_EQ(decided({.temperature = 1, .top_p = 0.9f}, Kind::kPeaked, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1, .top_p = 0.9f}, Kind::kFlat, kSteps), 0);
  EXPECT_EQ(decided({.temperature = 1, .min_p = 0.1f}, Kind::kPeaked, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1, .min_p = 0.1f}, Kind::kFlat, kSteps), 0);
  EXPECT_EQ(decided({.temperature = 1, .top_p = 0.99f, .min_p = 0.1f}, Kind::kPeaked, kSteps), kSteps);
  EXPECT_EQ(decided({.temperature = 1}, Kind::kPeaked, kSteps), 0);
  EXPECT_EQ(decided({.repetition_penalty = 0.9f}, Kind::kPeaked, kSteps), 0);
}

// The cut of the whole row, counted by itself: candidates decide if and only if it lies within them.
TEST_F(CandidatesTest, DecideIfAndOnlyIfTheCutLiesWithinThem) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::mt19937 random(11);
  int inside = 0;
  int outside = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const std::vector<float> row = row_of(trial % 2 == 0 ? Kind::kSpread : Kind::kPeaked, random);
    const OwnCandidates all = candidates_of(row, row.size());
    const size_t count = 1 + random() % 400;
    const bool by_share = trial % 3 != 0;
    SamplingOptions options{.temperature = 1};
    size_t kept = 0;
    if (by_share) {
      options.top_p = 0.05f + 0.9f * static_cast<float>(random() % 1000) / 1000;
      for (double sum = 0; sum < options.top_p * all.exp_sum; ++kept) {
        sum += std::exp(static_cast<double>(all.logits[kept]) - static_cast<double>(all.logits[0]));
      }
    } else {
      options.min_p = 0.001f + static_cast<float>(random() % 1000) / 2000;
      while (all.logits[kept] >= all.logits[0] + std::log(options.min_p)) ++kept;
    }
    const bool certain = by_share ? kept <= count : kept < count;
    const auto chosen = make(options)->sample(candidates_of(row, count).view());
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(chosen->has_value(), certain) << describe(options) << ": " << kept << " of " << count;
    ++(certain ? inside : outside);
  }
  EXPECT_GT(inside, 20);
  EXPECT_GT(outside, 20);
}

TEST_F(CandidatesTest, WholeRowsAreInOrderHoweverFarSomebodyLooks) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::mt19937 random(13);
  for (int kind = 0; kind < static_cast<int>(Kind::kKinds); ++kind) {
    const std::vector<float> row = row_of(static_cast<Kind>(kind), random);
    const OwnCandidates all = candidates_of(row, row.size());
    RankedTokens ranked;
    ranked.assign(row);
    size_t step = 1;
    for (size_t n = 0; n < all.tokens.size(); n += step) {
      ASSERT_EQ(ranked.at(n)->id, all.tokens[n]) << "kind " << kind << " place " << n;
      if (n > 5000) step = 1 + random() % 3000;
    }
    EXPECT_EQ(ranked.at(all.tokens.size()), nullptr);
  }
}

// Rows so short that every bound matters: of the tokens that are no candidates many are penalised.
TEST_F(CandidatesTest, BoundTheShareOfWhatIsNotAmongThem) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::mt19937 random(12);
  int decided = 0;
  int undecided = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<float> row(static_cast<size_t>(tokenizer_->size()), kImpossible);
    std::vector<int32_t> said;
    const int possible = 6 + static_cast<int>(random() % 9);
    for (int i = 0; i < possible; ++i) {
      const auto token = static_cast<int32_t>(random() % row.size());
      row[static_cast<size_t>(token)] = static_cast<float>(random() % 3000) / 1000 - 1;
      if (random() % 2 == 0) said.push_back(token);
    }
    SamplingOptions options{.temperature = 1, .seed = static_cast<uint32_t>(trial)};
    options.top_p = static_cast<float>(1 + random() % 99) / 100;
    options.top_k = trial % 4 == 0 ? 7 : 0;
    options.min_p = trial % 3 == 0 ? 0.2f : 0.0f;
    options.repetition_penalty = 1 + static_cast<float>(random() % 40) / 10;
    auto sampler = make(options);
    sampler->observe(said);
    const auto own = candidates_of(row, 2 + random() % 5);
    const auto chosen = sampler->sample(own.view());
    ASSERT_TRUE(chosen.ok());
    ++(*chosen ? decided : undecided);
    if (!*chosen) continue;
    auto whole = make(options);
    whole->observe(said);
    ASSERT_EQ(**chosen, *whole->sample(row)) << "trial " << trial << ": " << describe(options);
  }
  EXPECT_GT(decided, 500);
  EXPECT_GT(undecided, 500);
}

TEST_F(CandidatesTest, ACutOnTheEdgeOfATokenIsLeftToTheWholeRow) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  std::vector<float> row(static_cast<size_t>(tokenizer_->size()), kImpossible);
  std::fill_n(row.begin(), 8, 1.0f);
  const OwnCandidates four = candidates_of(row, 4);
  EXPECT_FALSE(*make({.temperature = 1, .top_p = 0.25f})->sample(four.view()));  // two of eight, to a bit
  EXPECT_TRUE(*make({.temperature = 1, .top_p = 0.26f})->sample(four.view()));
  EXPECT_TRUE(*make({.temperature = 1, .top_p = 0.24f})->sample(four.view()));
  EXPECT_FALSE(*make({.temperature = 1, .top_p = 0.51f})->sample(four.view()));
}

TEST_F(CandidatesTest, BrokenAndImpossibleRowsAreLeftToTheWholeRow) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  for (const float temperature : {0.0f, 1.0f}) {
    auto sampler = make({.temperature = temperature, .top_k = 4});
    EXPECT_FALSE(*sampler->sample(Candidates{}));
    OwnCandidates four = candidates_of(std::vector<float>(9, 1.0f), 4);
    Candidates broken = four.view();
    broken.broken = true;
    EXPECT_FALSE(*sampler->sample(broken));
    EXPECT_TRUE(*sampler->sample(four.view()));
  }
}

TEST_F(CandidatesTest, AreOnlyAskedForWhereTheyMayDecide) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  const auto takes = [](const SamplingOptions& options) { return make(options)->takes_candidates(kCount); };
  EXPECT_TRUE(takes({}));
  EXPECT_TRUE(takes({.repetition_penalty = 1.2f}));
  EXPECT_FALSE(takes({.repetition_penalty = 0.9f}));
  EXPECT_FALSE(takes({.temperature = 1}));
  EXPECT_TRUE(takes({.temperature = 1, .top_k = 256}));
  EXPECT_FALSE(takes({.temperature = 1, .top_k = 257}));
  EXPECT_TRUE(takes({.temperature = 1, .top_k = 257, .min_p = 0.1f}));
  EXPECT_TRUE(takes({.temperature = 1, .top_p = 0.9f}));
}

// Without ties, a seed's tokens are those of libllama's own samplers; its sums for top_p are rounded to
// float32, which is one cut in rows of few likely tokens.
TEST_F(CandidatesTest, WholeRowsAndCandidatesAreDrawnFromAsLibllamaDoes) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  for (SamplingOptions options : kSettings) {
    if (options.temperature == 0) continue;
    options.seed = 77;
    llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (options.top_k > 0) llama_sampler_chain_add(chain, llama_sampler_init_top_k(options.top_k));
    if (options.top_p < 1) llama_sampler_chain_add(chain, llama_sampler_init_top_p(options.top_p, 1));
    if (options.min_p > 0) llama_sampler_chain_add(chain, llama_sampler_init_min_p(options.min_p, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(options.temperature));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(options.seed));
    auto sampler = make(options);
    std::mt19937 random(5);
    for (int step = 0; step < 20; ++step) {
      const bool peaked = options.top_p < 1 || step % 2 == 0;
      const std::vector<float> row = row_of(peaked ? Kind::kPeaked : Kind::kSpread, random);
      std::vector<llama_token_data> tokens;
      for (const float logit : row) tokens.push_back({static_cast<int32_t>(tokens.size()), logit, 0});
      llama_token_data_array list{tokens.data(), tokens.size(), -1, false};
      llama_sampler_apply(chain, &list);
      const auto own = candidates_of(row);
      const auto brief = sampler->sample(own.view());
      const int32_t token = *brief ? **brief : sampler->sample(row).value();
      ASSERT_EQ(token, list.data[list.selected].id) << describe(options) << " step " << step;
    }
    llama_sampler_free(chain);
  }
}

}  // namespace
}  // namespace rhapsode::text
