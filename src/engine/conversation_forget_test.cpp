// What a conversation's KV saw, and what becomes of it when that is forgotten.
#include "engine/conversation_fixture.h"

namespace rhapsode {

TEST_F(ConversationTest, ForgettingASourceLeavesNoPageThatSawIt) {
  write("secret.md", "The canary code of the northern gate is ZX-4417-Q.\n");
  const auto memory = open();
  add(*memory);
  const auto chat = begin(*memory, "main", 512);
  const auto clean = begin(*memory, "clean", 512);
  // The document is in view of the first turn only; what follows sees it through what that one left.
  for (int turn = 0; turn < 6; ++turn) {
    SayOptions options = saying(turn == 0 ? "The canary code of the northern gate?" : filler(turn));
    options.sampling.grammar = "root ::= \"yes\"";
    say(*clean, options);
    options.most_passages = turn == 0 ? 1 : 0;
    const Reply reply = say(*chat, options);
    if (turn > 0) continue;
    ASSERT_EQ(reply.recalled.size(), 1u);
    EXPECT_FALSE(reply.recalled.front().conversation);
  }
  const std::vector<float> without = first_logits(*clean);
  ASSERT_EQ(chat->live_tokens(), clean->live_tokens());
  const double knew = largest_difference(first_logits(*chat), without);
  EXPECT_GT(knew, 1e-3) << "the pages never knew, so that this test could not fail";
  const std::string document = memory->list({}).value().front().source;
  ASSERT_NE(document.find("secret.md"), std::string::npos);
  ForgetOptions forgetting;
  forgetting.sources = {document};
  const auto report = memory->forget(forgetting);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->sources, std::vector<std::string>{document});
  EXPECT_LT(largest_difference(first_logits(*chat), without), knew / 100);
  const auto stored = memory->verify({1.0, 0});
  ASSERT_TRUE(stored.ok());
  EXPECT_TRUE(stored->problems.empty());
}

}  // namespace rhapsode
