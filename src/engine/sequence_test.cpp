#include "engine/sequence.h"

#include <gtest/gtest.h>

#include "engine/prefix_cache.h"

namespace rhapsode::engine {
namespace {

using kernels::kPageTokens;

kernels::KvShape tiny_shape() {
  return {.layers = 1, .kv_heads = 1, .head_dim = 16, .type = kernels::KvType::kF32};
}

class SequenceTest : public ::testing::Test {
 protected:
  std::unique_ptr<store::PagePool> pool_ =
      store::PagePool::create(tiny_shape(), tiny_shape().block_bytes() * 200).value();

  Sequence filled(int tokens) {
    Sequence sequence(*pool_);
    EXPECT_TRUE(sequence.reserve(tokens));
    sequence.commit(tokens);
    return sequence;
  }
  kernels::BatchPlan plan_of(const Sequence& sequence, int rows) {
    kernels::BatchPlan plan;
    sequence.add_to_plan(rows, plan);
    return plan;
  }
  uint64_t blocks() const { return pool_->stats().blocks_used; }
};

TEST_F(SequenceTest, PlansArePositionedAndMaskedAndPassTheValidator) {
  Sequence sequence = filled(70);
  ASSERT_TRUE(sequence.reserve(60));
  const auto plan = plan_of(sequence, 60);
  ASSERT_TRUE(kernels::validate(plan, tiny_shape()).ok())
      << kernels::validate(plan, tiny_shape()).error().message;
  ASSERT_EQ(plan.sequences[0].references.size(), 3u);
  EXPECT_EQ(plan.sequences[0].references[0].mask, ~0ull);
  EXPECT_EQ(plan.sequences[0].references[2].mask, 0b11ull);
  EXPECT_EQ(plan.positions.front(), 70);
  EXPECT_EQ(plan.positions.back(), 129);
  EXPECT_EQ(plan.writes[0].slot, 6);
  EXPECT_EQ(plan.writes.back().page->positions[plan.writes.back().slot], 129);
}

TEST_F(SequenceTest, BlendedTokensAreLeftOutOfTheirPagesAndComeFirst) {
  const Sequence stored = filled(100);
  Sequence sequence(*pool_);
  std::vector<store::PagePin> pages;
  for (int i = 0; i < 2; ++i) pages.push_back(stored.page(i).share());
  const std::vector<int32_t> left_out = {0, 63, 64, 99};
  sequence.adopt_passage(pages, 100, 10, left_out);
  sequence.blend_tokens({10, 73, 74, 109});
  EXPECT_EQ(sequence.tokens(), 100);
  EXPECT_EQ(sequence.scattered_left(), 4);
  EXPECT_EQ(sequence.blocks_needed(10), 2);  // a private page, and one for what stands behind
  ASSERT_TRUE(sequence.reserve(10));
  // The first three in one pass, the last with what follows it in another.
  for (const int rows : {3, 7}) {
    const auto plan = plan_of(sequence, rows);
    ASSERT_TRUE(kernels::validate(plan, tiny_shape()).ok())
        << kernels::validate(plan, tiny_shape()).error().message;
    EXPECT_EQ(plan.sequences[0].references[0].mask, ~0ull & ~1ull & ~(1ull << 63));
    EXPECT_EQ(plan.sequences[0].references[1].mask, kernels::first_slots(35) & ~1ull);
    for (int row = 0; row < rows; ++row) {
      EXPECT_EQ(plan.writes[row].page->positions[plan.writes[row].slot], plan.positions[row]);
    }
    EXPECT_EQ(plan.positions.front(), rows == 3 ? 10 : 109);
    EXPECT_EQ(plan.positions.back(), rows == 3 ? 74 : 115);
    sequence.commit(rows);
  }
  EXPECT_EQ(sequence.tokens(), 106);
  EXPECT_EQ(sequence.scattered_left(), 0);
  sequence.truncate(0);
  EXPECT_EQ(sequence.pages(), 0);
  EXPECT_EQ(sequence.blocks_needed(1), 1);
}

TEST_F(SequenceTest, AForkInTheMiddleOfBlendingGoesOnAlone) {
  Sequence sequence(*pool_);
  std::vector<int32_t> positions(100);
  for (int i = 0; i < 100; ++i) positions[i] = 2 * i;
  sequence.blend_tokens(positions);
  ASSERT_TRUE(sequence.reserve(70));
  sequence.commit(70);
  Sequence fork = sequence.fork();
  EXPECT_EQ(fork.scattered_left(), 30);
  ASSERT_TRUE(fork.reserve(30));
  const auto plan = plan_of(fork, 30);
  EXPECT_TRUE(kernels::validate(plan, tiny_shape()).ok());
  EXPECT_EQ(plan.positions.front(), 140);
  EXPECT_EQ(plan.positions.back(), 198);
  EXPECT_NE(plan.writes[0].page, sequence.page(1).get());  // copied on write
}

TEST_F(SequenceTest, ForkSharesEveryPageAndCopiesTheLastOnlyOnWrite) {
  Sequence sequence = filled(100);
  const uint64_t before = blocks();
  Sequence fork = sequence.fork();
  EXPECT_EQ(blocks(), before);
  EXPECT_EQ(pool_->stats().copies, 0u);
  EXPECT_EQ(fork.blocks_needed(1), 1);
  ASSERT_TRUE(fork.reserve(1));
  EXPECT_EQ(pool_->stats().copies, 1u);
  EXPECT_EQ(fork.page(0).get(), sequence.page(0).get());
  EXPECT_NE(fork.page(1).get(), sequence.page(1).get());
  EXPECT_EQ(sequence.blocks_needed(1), 0) << "the original owns its last page again";
}

TEST_F(SequenceTest, ForkAtAPageBorderNeverCopies) {
  Sequence sequence = filled(2 * kPageTokens);
  Sequence fork = sequence.fork();
  ASSERT_TRUE(fork.reserve(1));
  ASSERT_TRUE(sequence.reserve(1));
  EXPECT_EQ(pool_->stats().copies, 0u);
}

TEST_F(SequenceTest, ReserveStopsAtTheCapAndCanBeTakenUpAgain) {
  Sequence big = filled(150 * kPageTokens);
  Sequence other = filled(10);
  EXPECT_FALSE(other.reserve(100 * kPageTokens));
  big.truncate(0);
  EXPECT_TRUE(other.reserve(100 * kPageTokens));
}

TEST_F(SequenceTest, DroppedPagesCloseTheGapInPositions) {
  Sequence sequence = filled(5 * kPageTokens + 10);
  EXPECT_EQ(sequence.drop_pages(1, 2), 2 * kPageTokens);
  EXPECT_EQ(sequence.tokens(), 3 * kPageTokens + 10);
  EXPECT_TRUE(sequence.renumbered());
  ASSERT_TRUE(sequence.reserve(1));
  const auto plan = plan_of(sequence, 1);
  ASSERT_TRUE(kernels::validate(plan, tiny_shape()).ok());
  const auto& references = plan.sequences[0].references;
  EXPECT_EQ(references[0].shift, 0);
  EXPECT_EQ(references[1].shift, -2 * kPageTokens);
  EXPECT_EQ(references[1].page->positions[0] + references[1].shift, kPageTokens);
  EXPECT_EQ(plan.positions[0], 3 * kPageTokens + 10);
  const auto& write = plan.writes[0];
  EXPECT_EQ(write.page->positions[write.slot] + references.back().shift, plan.positions[0]);
}

TEST_F(SequenceTest, TruncateGivesPagesBack) {
  Sequence sequence = filled(200);
  sequence.truncate(65);
  EXPECT_EQ(blocks(), 2u);
  EXPECT_EQ(sequence.tokens(), 65);
  ASSERT_TRUE(sequence.reserve(1));
  EXPECT_EQ(plan_of(sequence, 1).writes[0].slot, 1);
}

std::vector<int32_t> numbered(int count, int from = 0) {
  std::vector<int32_t> tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = from + i;
  return tokens;
}

class PrefixCacheTest : public SequenceTest {
 protected:
  void keep(const std::vector<int32_t>& tokens, const PrefixKey& key = {}) {
    cache_.insert(key, tokens, filled(static_cast<int>(tokens.size())));
  }
  int hit(const std::vector<int32_t>& tokens, const PrefixKey& key = {}) {
    Sequence sequence(*pool_);
    const PrefixMatch match = cache_.lookup(key, tokens, sequence);
    EXPECT_EQ(match.tokens, sequence.tokens());
    EXPECT_EQ(match.tokens, cache_.peek(key, tokens));
    return match.tokens;
  }
  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, MatchesToTheTokenAlsoBelowOnePage) {  // C10, C14
  keep(numbered(1500));
  auto changed = numbered(1500);
  changed[1490] = -1;
  EXPECT_EQ(hit(changed), 1490);
  keep(numbered(40, 5000));
  EXPECT_EQ(hit(numbered(30, 5000)), 30);
  EXPECT_EQ(hit(numbered(60, 5000)), 40);
  EXPECT_EQ(hit(numbered(10, 9000)), 0);
}

TEST_F(PrefixCacheTest, SaysWhatStoodThereInstead) {  // C4
  keep(numbered(100));
  auto changed = numbered(100);
  changed[70] = 12345;
  Sequence sequence(*pool_);
  const PrefixMatch match = cache_.lookup({}, changed, sequence);
  EXPECT_EQ(match.tokens, 70);
  EXPECT_EQ(match.cached_instead, 70);
}

TEST_F(PrefixCacheTest, KeysDoNotMix) {
  keep(numbered(100), {"reuse", ""});
  EXPECT_EQ(hit(numbered(100)), 0);
  EXPECT_EQ(hit(numbered(100), {"reuse", ""}), 100);
  EXPECT_EQ(hit(numbered(100), {"reuse", "a"}), 0);
}

TEST_F(PrefixCacheTest, ALongerTailReplacesTheShorterOne) {  // C11
  keep(numbered(70));
  keep(numbered(90));
  EXPECT_EQ(cache_.pages(), 2);
  EXPECT_EQ(hit(numbered(90)), 90);
}

TEST_F(PrefixCacheTest, EvictsLeastRecentLeavesAndNeverWhatIsInUse) {
  keep(numbered(64));
  keep(numbered(64, 1000));
  keep(numbered(128, 2000));
  EXPECT_EQ(hit(numbered(64)), 64);  // now the most recent
  Sequence user(*pool_);
  cache_.lookup({}, numbered(64, 1000), user);
  EXPECT_EQ(cache_.evictable(), 3);
  EXPECT_EQ(cache_.evict(1), 1);
  EXPECT_EQ(hit(numbered(128, 2000)), 64) << "the leaf went, its parent stayed";
  EXPECT_EQ(cache_.evict(10), 2);
  EXPECT_EQ(hit(numbered(64, 1000)), 64) << "a page in use is never dropped";
  EXPECT_EQ(hit(numbered(64)), 0);
}

TEST_F(PrefixCacheTest, RenumberedSequencesAreNotKept) {
  Sequence sequence = filled(200);
  sequence.drop_pages(1, 1);
  cache_.insert({}, numbered(sequence.tokens()), sequence);
  EXPECT_EQ(cache_.pages(), 0);
}

}  // namespace
}  // namespace rhapsode::engine
