// Blending on a tiny model: private pages beside masked shared ones, against full attention over the same
// tokens, and selectors against what they promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "base/sha256.h"
#include "engine/passes_fixture.h"
#include "recall/blender.h"
#include "text/sampler.h"

namespace rhapsode {
namespace {

using engine::Sequence;
using kernels::kPageTokens;
using recall::PassageTokens;

class BlendTest : public PassesFixture {
 protected:
  void TearDown() override { encoded_.clear(); }

  static PassageTokens passage(int tokens, int seed) {
    PassageTokens passage;
    for (int i = 0; i < tokens; ++i) passage.tokens.push_back(20 + (seed * 31 + i * 37) % 200);
    passage.text_tokens = tokens;
    return passage;
  }

  // Encodes passages and places them one after another.
  void read(std::vector<PassageTokens> passages) {
    texts_ = std::move(passages);
    auto encoded = encoder_->encode(texts_, /*index_only=*/false);
    ASSERT_TRUE(encoded.ok()) << encoded.error().message;
    encoded_ = std::move(encoded).value();
    int32_t position = prefix_tokens();
    read_.clear();
    for (size_t i = 0; i < texts_.size(); ++i) {
      read_.push_back({encoded_[i].pages, &texts_[i], position, i == 0});
      position += read_.back().size();
    }
    tail_position_ = position;
  }
  recall::BlendContext context() {
    recall::BlendContext context;
    recall::add_references(*encoder_->prefix_pages(), prefix_tokens(), 0, context.prefix);
    context.passages = read_;
    context.question = question_;
    context.question_position = tail_position_;
    return context;
  }
  recall::Blend blend(BlendSelector kind, double share, int rounds = 1) {
    const auto selector = recall::make_selector(kind, {passes_.get(), rarity(), 7});
    auto result = recall::blend(*passes_, context(), *selector, {kind, share, rounds});
    EXPECT_TRUE(result.ok()) << result.error().message;
    return result.ok() ? std::move(result).value() : recall::Blend{};
  }
  static recall::TokenRarity rarity() {
    return [](std::span<const int32_t> tokens) -> Result<std::vector<double>> {
      return std::vector<double>(tokens.begin(), tokens.end());
    };
  }

  // A request over the blended passages.
  std::shared_ptr<engine::RequestState> request(const recall::Blend& blend, int max_tokens) {
    Request asked;
    asked.max_tokens = max_tokens;
    asked.ignore_end = true;
    asked.logits = true;
    auto state = std::make_shared<engine::RequestState>(std::move(asked), *pool_);
    state->context_tokens = 4096;
    const auto add = [&](std::span<const store::PagePin> pages, int tokens, int32_t shift) {
      engine::ContextRun run{{}, tokens, shift, {}};
      for (const store::PagePin& page : pages) run.pages.push_back(page.share());
      state->runs.push_back(std::move(run));
    };
    add(*encoder_->prefix_pages(), prefix_tokens(), 0);
    state->prompt = frame_->prefix();
    for (size_t i = 0; i < read_.size(); ++i) {
      add(read_[i].pages, read_[i].size(), read_[i].shift);
      if (!blend.left_out.empty()) state->runs.back().left_out = blend.left_out[i];
      state->prompt.insert(state->prompt.end(), texts_[i].tokens.begin(), texts_[i].tokens.end());
    }
    state->blended = blend.tokens;
    state->fresh.count = blend.fresh.count;
    for (const store::PagePin& page : blend.fresh.pages) state->fresh.pages.push_back(page.share());
    state->prompt.insert(state->prompt.end(), question_.begin(), question_.end());
    state->tokens = state->prompt;
    state->response.usage.prompt_tokens = static_cast<int>(state->prompt.size());
    state->sampler = std::move(text::Sampler::make(runner_->tokenizer(), {}).value());
    state->decoder = std::move(text::StreamDecoder::make({}).value());
    return state;
  }
  static Response wait(engine::RequestState& state) {
    std::unique_lock lock(state.mutex);
    state.done.wait(lock, [&] { return state.outcome.has_value(); });
    EXPECT_TRUE(state.outcome->ok()) << state.outcome->error().message;
    return state.outcome->ok() ? state.outcome->value() : Response{};
  }
  Response run(const recall::Blend& blend, int max_tokens) {
    const auto state = request(blend, max_tokens);
    scheduler_->submit(state);
    return wait(*state);
  }

  // Appends rows to a sequence, `step` at a time; the logits of the last one.
  std::vector<float> append(Sequence& sequence, std::span<const int32_t> tokens, int step) {
    std::vector<float> last;
    for (size_t begin = 0; begin < tokens.size(); begin += step) {
      const auto part = tokens.subspan(begin, std::min<size_t>(step, tokens.size() - begin));
      const auto rows = static_cast<int>(part.size());
      EXPECT_TRUE(sequence.reserve(rows));
      kernels::BatchPlan plan;
      sequence.add_to_plan(rows, plan);
      const std::vector<int32_t> output{rows - 1};
      const auto result = runner_->evaluate({part, &plan, output});
      EXPECT_TRUE(result.ok());
      if (result.ok()) last.assign(result->begin(), result->end());
      sequence.commit(rows);
    }
    return last;
  }
  std::vector<std::string> page_hashes() const {
    std::vector<std::string> hashes;
    for (const recall::Encoded& encoded : encoded_) {
      for (const store::PagePin& page : encoded.pages) {
        const std::span bytes(page->data, pool_->shape().block_bytes());
        hashes.push_back(sha256(bytes).value());
      }
    }
    return hashes;
  }

  std::vector<PassageTokens> texts_;
  std::vector<recall::Encoded> encoded_;
  std::vector<recall::BlendPassage> read_;
  std::vector<int32_t> question_ = {40, 41, 42, 43, 44, 45};
  int32_t tail_position_ = 0;
};

// Pages that are on their way are waited for behind the first pass; where they did not arrive, nothing comes
// of the request.
TEST_F(BlendTest, NothingIsToldOrKeptOfPagesThatDidNotArrive) {
  read({passage(150, 1), passage(90, 2)});
  for (const bool arrives : {true, false}) {
    const auto state = request({}, 4);
    int asked = 0;
    int told = 0;
    state->prefix_key = {"reuse", arrives ? "arrived" : "lost"};
    state->arrive = [&]() -> Status {
      EXPECT_EQ(told, 0);
      ++asked;
      return arrives ? Status() : Status(make_error(ErrorKind::kInternal, "garbled on the way"));
    };
    state->request.on_text = [&](std::string_view) { return ++told > 0; };
    scheduler_->submit(state);
    std::unique_lock lock(state->mutex);
    state->done.wait(lock, [&] { return state->outcome.has_value(); });
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(state->outcome->ok(), arrives);
    EXPECT_EQ(told > 0, arrives);
    if (!arrives) {
      EXPECT_EQ(state->outcome->error().message, "garbled on the way");
    }
    const auto own =
        std::span<const int32_t>(state->prompt).subspan(static_cast<size_t>(state->run_tokens()));
    EXPECT_EQ(scheduler_->cached_prefix(state->prefix_key, own) > 0, arrives);
  }
}

TEST_F(BlendTest, EverySelectorRanksTokensOnceAndNoneOfAnExactPassage) {
  read({passage(50, 1), passage(70, 2), passage(3, 3), passage(64, 4)});
  for (const BlendSelector kind : kBlendSelectors) {
    const auto selector = recall::make_selector(kind, {passes_.get(), rarity(), 7});
    const auto ranking = selector->rank(context());
    ASSERT_TRUE(ranking.ok()) << to_string(kind) << ": " << ranking.error().message;
    const std::set<recall::DocumentToken> distinct(ranking->begin(), ranking->end());
    EXPECT_EQ(distinct.size(), ranking->size()) << to_string(kind);
    for (const auto& [p, t] : *ranking) {
      ASSERT_TRUE(p >= 1 && p < 4 && t >= 0 && t < read_[p].size()) << to_string(kind);
    }
    EXPECT_EQ(ranking->size(), 70u + 3 + 64) << to_string(kind);
    // The same again gives the same, and fewer are the first of them.
    EXPECT_EQ(*selector->rank(context()), *ranking) << to_string(kind);
    for (const size_t most : {size_t{0}, size_t{1}, size_t{20}, size_t{100}, size_t{1000}}) {
      recall::Ranking first = *ranking;
      first.resize(std::min(first.size(), most));
      EXPECT_EQ(*selector->rank(context(), most), first) << to_string(kind) << " " << most;
    }
  }
}

TEST_F(BlendTest, WhatSelectingCostIsCounted) {
  read({passage(50, 1), passage(70, 2), passage(30, 3)});
  const int layers = runner_->architecture().layers;
  EXPECT_EQ(blend(BlendSelector::kFirst, 0.2).selection.rows, 0u);
  EXPECT_EQ(blend(BlendSelector::kAttention, 0.2).selection.charged, 6);
  const recall::Blend deviation = blend(BlendSelector::kDeviation, 0.2);
  EXPECT_EQ(deviation.selection.rows, 100u);
  EXPECT_NEAR(deviation.selection.charged, 100.0 * 2 / layers, 1e-9);
  EXPECT_EQ(blend(BlendSelector::kAttention, 0).selection.rows,
            0u);  // nothing is asked when nothing is chosen
}

TEST_F(BlendTest, TheShareIsOfAllTokensAndFirstTakesTheStartOfEachPassage) {
  read({passage(50, 1), passage(70, 2), passage(30, 3)});
  const recall::Blend blended = blend(BlendSelector::kFirst, 0.1);
  EXPECT_EQ(blended.tokens.size(), 15u);
  EXPECT_TRUE(blended.left_out[0].empty());
  EXPECT_EQ(blended.left_out[1], (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(blended.left_out[2], (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(std::is_sorted(blended.tokens.begin(), blended.tokens.end(),
                             [](const auto& a, const auto& b) { return a.position < b.position; }));
  EXPECT_EQ(blended.tokens.front().position, read_[1].shift);
  EXPECT_EQ(blended.tokens.front().token, texts_[1].tokens[0]);
}

TEST_F(BlendTest, SharesOutOfRangeAndSharedPositionsAreRefused) {
  read({passage(50, 1), passage(70, 2)});
  const auto selector = recall::make_selector(BlendSelector::kFirst, {passes_.get(), rarity(), 7});
  const auto refused = [&](double share, int rounds) {
    return !recall::blend(*passes_, context(), *selector, {BlendSelector::kFirst, share, rounds}).ok();
  };
  EXPECT_TRUE(refused(-0.1, 1));
  EXPECT_TRUE(refused(1.1, 1));
  EXPECT_TRUE(refused(std::nan(""), 1));
  EXPECT_TRUE(refused(0.5, 0));
  EXPECT_TRUE(refused(0.5, kMostBlendRounds + 1));
  read_[1].shift = read_[0].shift;
  const auto parallel = recall::blend(*passes_, context(), *selector, {BlendSelector::kFirst, 0.5});
  ASSERT_FALSE(parallel.ok());
  EXPECT_EQ(parallel.error().kind, ErrorKind::kInvalidArgument);
}

// The mass of a pass, by hand: the question's rows over the passages, in the reference's double precision,
// rank the same tokens.
TEST_F(BlendTest, MassIsASumOfProbabilities) {
  read({passage(20, 1), passage(40, 2)});
  recall::PassBatch batch;
  batch.mass = true;
  kernels::SequencePlan sequence;
  sequence.row_count = 1;
  sequence.references = context().prefix;
  for (const recall::BlendPassage& passage : read_) {
    recall::add_references(passage.pages, passage.size(), passage.shift, sequence.references);
  }
  batch.plan.sequences.push_back(sequence);
  batch.plan.positions = {tail_position_};
  batch.plan.writes = {{}};
  batch.tokens = {40};
  const auto mass = passes_->attention_mass(batch);
  ASSERT_TRUE(mass.ok()) << mass.error().message;
  const auto& slots = mass->front();
  ASSERT_EQ(slots.size(), sequence.references.size() * kPageTokens);
  const double total = std::accumulate(slots.begin(), slots.end(), 0.0);
  // One row: each layer's heads spread a probability of 1 each.
  EXPECT_NEAR(total, runner_->architecture().layers * runner_->architecture().heads, 1e-3);
  for (size_t r = 0; r < sequence.references.size(); ++r) {
    for (int slot = 0; slot < kPageTokens; ++slot) {
      const bool seen = sequence.references[r].mask >> slot & 1;
      if (!seen) EXPECT_EQ(slots[r * kPageTokens + slot], 0.0);
    }
  }
}

// Rung 2 of the correctness ladder: recomputing every token is full attention over the same page cuts.
TEST_F(BlendTest, BlendingEveryTokenIsFullAttentionByteForByte) {
  encoded_.clear();
  open(/*deterministic=*/true);
  read({passage(50, 1), passage(70, 2), passage(30, 3), passage(65, 4)});
  std::vector<int32_t> documents;
  for (size_t i = 1; i < texts_.size(); ++i) {
    documents.insert(documents.end(), texts_[i].tokens.begin(), texts_[i].tokens.end());
  }
  Sequence full(*pool_);
  full.adopt_passage(*encoder_->prefix_pages(), prefix_tokens(), 0);
  full.adopt_passage(read_[0].pages, read_[0].size(), read_[0].shift);
  append(full, documents, 16);
  full.adopt_passage({}, 0, 0);  // seals the page that stands open, as private pages are
  const std::vector<float> expected = append(full, question_, 16);
  for (const BlendSelector kind : kBlendSelectors) {
    const Response response = run(blend(kind, 1.0), 1);
    ASSERT_EQ(response.tokens.size(), 1u);
    EXPECT_EQ(response.tokens[0].logits, expected) << to_string(kind);
  }
}

// Host memory that claims to be a device's.
class CheaplyCopied final : public kernels::PageMemory {
 public:
  Result<std::byte*> reserve(size_t bytes) override { return host_->reserve(bytes); }
  bool host_addressable() const override { return true; }
  uint64_t suggested_bytes() const override { return host_->suggested_bytes(); }
  Status copy_in(std::byte* to, std::span<const std::byte> from) override { return host_->copy_in(to, from); }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    return host_->copy_out(from, to);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    ++copies;
    return host_->copy_within(from, to, bytes);
  }
  bool copies_cheaply() const override { return true; }

  static inline int copies = 0;

 private:
  std::unique_ptr<kernels::PageMemory> host_ = kernels::host_page_memory();
};

// What takes the places of stale tokens in private copies is what masks and pages of its own give, and the
// shared pages stay as they are.
TEST_F(BlendTest, TokensRewrittenInPrivateCopiesAreTheSameBlend) {
  const auto texts = [] {
    return std::vector<PassageTokens>{passage(50, 1), passage(70, 2), passage(30, 3), passage(150, 4)};
  };
  std::map<double, Response> masked;
  std::vector<float> full;
  for (const bool cheaply : {false, true}) {
    encoded_.clear();
    read_.clear();
    open(/*deterministic=*/true,
         cheaply ? std::unique_ptr<kernels::PageMemory>(std::make_unique<CheaplyCopied>()) : nullptr);
    read(texts());
    const auto before = page_hashes();
    for (const double share : {0.1, 0.3, 1.0}) {
      CheaplyCopied::copies = 0;
      const recall::Blend blended = blend(BlendSelector::kAttentionFirst, share);
      Response response = run(blended, 6);
      EXPECT_EQ(CheaplyCopied::copies > 0, cheaply);
      ASSERT_EQ(response.tokens.size(), 6u);
      if (!cheaply) {
        masked[share] = std::move(response);
        continue;
      }
      EXPECT_EQ(response.usage.cached_tokens, masked[share].usage.cached_tokens);
      EXPECT_EQ(response.usage.evaluated_tokens, masked[share].usage.evaluated_tokens);
      for (size_t t = 0; t < 6; ++t) {
        const std::vector<float>& logits = response.tokens[t].logits;
        for (size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(logits[i], masked[share].tokens[t].logits[i], 1e-4) << share << " " << t << " " << i;
        }
      }
    }
    EXPECT_EQ(page_hashes(), before);
  }
}

TEST_F(BlendTest, WithoutRoomForPrivateCopiesTokensAreLeftOutOfSharedPages) {
  encoded_.clear();
  open(/*deterministic=*/true, std::make_unique<CheaplyCopied>());
  read({passage(50, 1), passage(70, 2), passage(150, 4)});
  // Tokens of every page.
  const recall::Blend blended = blend(BlendSelector::kRandom, 0.3);
  const Response copied = run(blended, 2);
  // All but what the request needs at least.
  const store::PagePoolStats stats = pool_->stats();
  std::vector<store::PagePin> rest;
  for (uint64_t i = stats.blocks_used; i + 4 < stats.blocks_total; ++i) rest.push_back(pool_->allocate());
  CheaplyCopied::copies = 0;
  const Response masked = run(blended, 2);
  EXPECT_EQ(CheaplyCopied::copies, 0);
  ASSERT_EQ(masked.tokens.size(), 2u);
  for (size_t i = 0; i < masked.tokens[0].logits.size(); ++i) {
    ASSERT_NEAR(masked.tokens[0].logits[i], copied.tokens[0].logits[i], 1e-4);
  }
}

// A budget of rows in between: some tokens are rewritten by a later pass than others.
TEST_F(BlendTest, ASequenceRewritesItsTokensInAnyStepAsAtOnce) {
  read({passage(50, 1), passage(140, 2)});
  const recall::Blend blended = blend(BlendSelector::kFirst, 0.3);
  const auto evaluated = [&](int step) {
    Sequence sequence(*pool_);
    sequence.adopt_passage(*encoder_->prefix_pages(), prefix_tokens(), 0);
    sequence.adopt_passage(read_[0].pages, read_[0].size(), read_[0].shift);
    std::vector<store::PagePin> copies;
    for (const store::PagePin& page : read_[1].pages) copies.push_back(pool_->copy(*page.get(), page->count));
    sequence.adopt_passage(copies, read_[1].size(), read_[1].shift);
    std::vector<kernels::RowWrite> places;
    std::vector<int32_t> positions, tokens;
    for (const int32_t token : blended.left_out[1]) {
      places.push_back({copies[token / kPageTokens].get(), token % kPageTokens, true});
      positions.push_back(read_[1].shift + token);
    }
    for (const recall::BlendedToken& token : blended.tokens) tokens.push_back(token.token);
    tokens.insert(tokens.end(), question_.begin(), question_.end());
    sequence.rewrite_tokens(positions, places);
    EXPECT_EQ(sequence.scattered_left(), static_cast<int>(positions.size()));
    const std::vector<float> logits = append(sequence, tokens, step);
    EXPECT_EQ(sequence.scattered_left(), 0);
    EXPECT_EQ(sequence.tokens(), prefix_tokens() + 190 + static_cast<int>(question_.size()));
    return logits;
  };
  const std::vector<float> once = evaluated(1000);
  for (const int step : {1, 7, 40}) {
    const std::vector<float> steps = evaluated(step);
    for (size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(steps[i], once[i], 1e-4) << step << " " << i;
  }
}

TEST_F(BlendTest, MoreTokensComeCloserToFullAttention) {
  read({passage(50, 1), passage(70, 2), passage(90, 3)});
  const std::vector<float> full = run(blend(BlendSelector::kRandom, 1.0), 1).tokens.at(0).logits;
  const auto distance = [&](double share) {
    const std::vector<float> logits = run(blend(BlendSelector::kFirst, share), 1).tokens.at(0).logits;
    double sum = 0;
    for (size_t i = 0; i < full.size(); ++i) sum += (full[i] - logits[i]) * (full[i] - logits[i]);
    return std::sqrt(sum);
  };
  const double none = distance(0), most = distance(0.7);
  EXPECT_GT(none, 1e-3);
  EXPECT_LT(most, none);
  EXPECT_LT(distance(1.0), 1e-3 * none + 1e-4);
}

TEST_F(BlendTest, TheLastSelectorTakesTheEndOfEachPassage) {
  read({passage(50, 1), passage(70, 2), passage(30, 3)});
  const recall::Blend blended = blend(BlendSelector::kLast, 0.1);
  EXPECT_EQ(blended.left_out[1], (std::vector<int32_t>{62, 63, 64, 65, 66, 67, 68, 69}));
  EXPECT_EQ(blended.left_out[2], (std::vector<int32_t>{23, 24, 25, 26, 27, 28, 29}));
}

// With a selector that does not look, rounds choose the same tokens; the rows of the first round have run
// before those of the second, and what differs is only that they have not seen them.
TEST_F(BlendTest, RoundsEvaluateEveryChosenTokenOnce) {
  read({passage(50, 1), passage(70, 2), passage(90, 3)});
  const recall::Blend one = blend(BlendSelector::kFirst, 0.4);
  const recall::Blend three = blend(BlendSelector::kFirst, 0.4, 3);
  EXPECT_EQ(three.left_out, one.left_out);
  EXPECT_EQ(three.recomputed(), 84);
  EXPECT_EQ(three.fresh.count, 56);
  EXPECT_EQ(three.tokens.size(), 28u);
  std::set<int32_t> positions;
  int slots = 0;
  for (const store::PagePin& page : three.fresh.pages) {
    for (int slot = 0; slot < page->count; ++slot, ++slots) positions.insert(page->positions[slot]);
  }
  EXPECT_EQ(slots, three.fresh.count);
  for (const recall::BlendedToken& token : three.tokens) positions.insert(token.position);
  EXPECT_EQ(positions.size(), 84u);
  const Response response = run(three, 2);
  EXPECT_EQ(response.usage.evaluated_tokens, 6 + 84);
  EXPECT_EQ(response.usage.cached_tokens, prefix_tokens() + 210);
}

// "first" takes tokens whose predecessors were taken before or in the same round, but for those of later
// passages: with two passages to choose from, of which one is chosen whole first, rounds are exact.
TEST_F(BlendTest, RoundsThatGoForwardEqualOneRound) {
  read({passage(50, 1), passage(64, 2)});
  const std::vector<float> one = run(blend(BlendSelector::kFirst, 0.5), 1).tokens.at(0).logits;
  const std::vector<float> rounds = run(blend(BlendSelector::kFirst, 0.5, 4), 1).tokens.at(0).logits;
  for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(rounds[i], one[i], 1e-4) << i;
}

TEST_F(BlendTest, EveryRoundLooksAtWhatIsStillStored) {
  read({passage(50, 1), passage(70, 2), passage(90, 3)});
  const recall::Blend rounds = blend(BlendSelector::kAttention, 0.3, 2);
  EXPECT_EQ(rounds.selection.charged, 12);
  EXPECT_EQ(rounds.recomputed(), 63);
  // At a share of 1 there is one round: the result is full attention.
  EXPECT_EQ(blend(BlendSelector::kAttention, 1.0, 4).fresh.count, 0);
}

TEST_F(BlendTest, TokensAreAccountedForExactly) {
  read({passage(50, 1), passage(70, 2), passage(30, 3)});
  const recall::Blend blended = blend(BlendSelector::kAttentionFirst, 0.2);
  const Response response = run(blended, 4);
  EXPECT_EQ(blended.tokens.size(), 30u);
  EXPECT_EQ(response.usage.cached_tokens, prefix_tokens() + 150);
  EXPECT_EQ(response.usage.evaluated_tokens, 6 + 30);
  EXPECT_EQ(response.usage.prompt_tokens, prefix_tokens() + 150 + 6);
}

// Section D of the user cases: whatever stands in the prompt, and how often.
TEST_F(BlendTest, TheSamePassageTwiceIsReadTwice) {
  read({passage(40, 1), passage(40, 1), passage(7, 2), passage(40, 1)});
  const recall::Blend blended = blend(BlendSelector::kRandom, 1.0);
  EXPECT_EQ(blended.tokens.size(), 40u + 7 + 40);
  const Response response = run(blended, 1);
  Sequence plain(*pool_);
  std::vector<int32_t> tokens = frame_->prefix();
  for (const PassageTokens& text : texts_)
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
  tokens.insert(tokens.end(), question_.begin(), question_.end());
  std::vector<float> expected;
  scheduler_->execute([&] { expected = append(plain, tokens, 512); });
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(response.tokens[0].logits[i], expected[i], 2e-3) << i;
  }
}

TEST_F(BlendTest, SharedPagesStayAsTheyAreUnderManyBlendedRequests) {
  read({passage(50, 1), passage(70, 2), passage(90, 3)});
  const std::vector<std::string> before = page_hashes();
  std::vector<std::shared_ptr<engine::RequestState>> requests;
  std::vector<std::vector<float>> alone;
  for (int i = 0; i < 32; ++i) {
    const recall::Blend blended =
        blend(kBlendSelectors[i % kBlendSelectors.size()], (i % 11) / 10.0, 1 + i % 3);
    alone.push_back(run(blended, 3).tokens.back().logits);
    requests.push_back(request(blended, 3));
  }
  for (const auto& state : requests) scheduler_->submit(state);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Response response = wait(*requests[i]);
    ASSERT_EQ(response.tokens.size(), 3u);
    for (size_t j = 0; j < alone[i].size(); ++j) {
      ASSERT_NEAR(response.tokens.back().logits[j], alone[i][j], 1e-3) << i;
    }
  }
  EXPECT_EQ(page_hashes(), before);
}

TEST_F(BlendTest, APoolTooSmallForAllPreemptsBlendedRequestsWithoutHarm) {
  read({passage(50, 1), passage(70, 2), passage(90, 3)});
  const recall::Blend blended = blend(BlendSelector::kFirst, 0.5, 2);
  const std::vector<float> alone = run(blended, 40).tokens.back().logits;
  const auto stats = pool_->stats();
  // What is left holds the private pages of a few requests only.
  std::vector<store::PagePin> taken;
  for (auto free = stats.blocks_total - stats.blocks_used; free > 9; --free)
    taken.push_back(pool_->allocate());
  std::vector<std::shared_ptr<engine::RequestState>> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(request(blended, 40));
  for (const auto& state : requests) scheduler_->submit(state);
  for (const auto& state : requests) {
    const Response response = wait(*state);
    ASSERT_EQ(response.tokens.size(), 40u);
    for (size_t j = 0; j < alone.size(); ++j) ASSERT_NEAR(response.tokens.back().logits[j], alone[j], 2e-3);
  }
}

TEST(MergedRankings, EachGivesItsShareOfAnyBeginning) {
  recall::Ranking a, b;
  for (int i = 0; i < 10; ++i) {
    a.push_back({0, i});
    b.push_back({0, 9 - i});
  }
  const recall::Ranking merged = recall::merge_rankings(std::vector<recall::Ranking>{a, b});
  EXPECT_EQ(merged.size(), 10u);
  EXPECT_EQ(merged[0], (recall::DocumentToken{0, 0}));
  EXPECT_EQ(merged[1], (recall::DocumentToken{0, 9}));
  EXPECT_EQ(merged[2], (recall::DocumentToken{0, 1}));
}

}  // namespace
}  // namespace rhapsode
