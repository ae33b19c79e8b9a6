// Three thousand turns in one budget. Slow tier: some minutes on two cores.
#include "engine/conversation_fixture.h"

namespace rhapsode {

TEST_F(ConversationTest, ThreeThousandTurnsCostTheSameEach) {
  const auto memory = open();
  const auto chat = begin(*memory, "main", 2048);
  uint64_t early_pages = 0;
  uint64_t late_pages = 0;
  int early_tokens = 0;
  int late_tokens = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    // Messages of one length, so that turns are alike.
    SayOptions options = saying_yes("[user-" + std::to_string(turn % 7) + ", 2026-03-01] Item " +
                                        std::to_string(1000 + turn) + " is on shelf " +
                                        std::to_string(1000 + turn * 7 % 1000) + ".",
                                    turn % 10 == 9 ? 2 : 0);
    const Reply reply = say(*chat, options);
    ASSERT_EQ(reply.usage.made_anew_tokens, 0);
    ASSERT_LE(reply.usage.live_tokens, 2048);
    const uint64_t pages = engine_->stats().kv_used_bytes;
    const bool early = turn >= 200 && turn < 400;
    const bool late = turn >= 2800;
    if (early) early_pages = std::max(early_pages, pages);
    if (late) late_pages = std::max(late_pages, pages);
    const int tokens = tokens_behind(reply) + reply.usage.message_tokens + reply.usage.index_tokens;
    if (early) early_tokens += tokens;
    if (late) late_tokens += tokens;
  }
  EXPECT_EQ(chat->history()->size(), 6000u);
  EXPECT_NEAR(late_tokens, early_tokens, early_tokens / 50);
  EXPECT_LE(late_pages, early_pages * 11 / 10);
  EXPECT_GT(memory->stats()->passages, 100);
}

}  // namespace rhapsode
