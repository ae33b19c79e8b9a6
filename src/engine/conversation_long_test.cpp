// Many turns in one budget cost the same each: a few hundred in the fast tier, three thousand in the slow one
// ($RHAPSODE_LONG_CONVERSATION).
#include <cstdlib>

#include "engine/conversation_fixture.h"

namespace rhapsode {

TEST_F(ConversationTest, ManyTurnsCostTheSameEach) {
  const int turns = std::getenv("RHAPSODE_LONG_CONVERSATION") != nullptr ? 3000 : 200;
  const int budget = turns == 3000 ? 2048 : 256;
  const int span = turns / 4;
  const auto memory = open();
  const auto chat = begin(*memory, "main", budget);
  uint64_t pages[2] = {0, 0};  // most in use in the second and in the last quarter
  int tokens[2] = {0, 0};      // evaluated and made into keys there
  for (int turn = 0; turn < turns; ++turn) {
    // Messages of one length, so that turns are alike.
    const std::string text = "[user-" + std::to_string(turn % 7) + ", 2026-03-01] Item " +
                             std::to_string(1000 + turn) + " is on shelf " +
                             std::to_string(1000 + turn * 7 % 1000) + ".";
    const Reply reply = say(*chat, saying_yes(text, turn % 10 == 9 ? 2 : 0));
    ASSERT_EQ(reply.usage.made_anew_tokens, 0);
    ASSERT_LE(reply.usage.live_tokens, budget);
    if (turn / span != 1 && turn / span != 3) continue;
    const int part = turn / span / 2;
    pages[part] = std::max(pages[part], engine_->stats().kv_used_bytes);
    tokens[part] += tokens_behind(reply) + reply.usage.message_tokens + reply.usage.index_tokens;
  }
  EXPECT_EQ(chat->history()->size(), static_cast<size_t>(2 * turns));
  EXPECT_NEAR(tokens[1], tokens[0], tokens[0] / 20);
  EXPECT_LE(pages[1], pages[0] * 11 / 10);
  EXPECT_GT(memory->stats()->passages, turns / 20);
}

}  // namespace rhapsode
