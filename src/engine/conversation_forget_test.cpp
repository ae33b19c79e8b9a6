// What a conversation's KV saw, and what becomes of it when that is forgotten.
#include "engine/conversation_fixture.h"

namespace rhapsode {

namespace {

constexpr char kSecret[] = "The canary code of the northern gate is ZX-4417-Q.\n";
constexpr char kQuestion[] = "The canary code of the northern gate?";

// Four layers: what one step saw reaches later ones through keys and values of the layers between.
class DeepConversationTest : public ConversationTest {
 protected:
  const char* tiny_model() const override { return "qwen2-q8_0"; }
};

// Whether any file below a folder holds these bytes.
bool stored_anywhere(const fs::path& folder, const std::string& bytes) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(in), {}};
    if (content.find(bytes) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_F(ConversationTest, ForgettingASourceLeavesNoPageThatSawIt) {
  write("secret.md", kSecret);
  const auto memory = open();
  add(*memory);
  const auto chat = begin(*memory, "main", 512);
  const auto clean = begin(*memory, "clean", 512);
  for (int turn = 0; turn < 6; ++turn) {
    const std::string text = turn == 0 ? kQuestion : filler(turn);
    say(*clean, saying_yes(text));
    const Reply reply = say(*chat, saying_yes(text, turn == 0 ? 1 : 0));
    if (turn > 0) continue;
    ASSERT_EQ(reply.recalled.size(), 1u);
    EXPECT_FALSE(reply.recalled.front().conversation);
  }
  const std::vector<float> without = first_logits(*clean);
  ASSERT_EQ(chat->live_tokens(), clean->live_tokens());
  const double knew = largest_difference(first_logits(*chat), without);
  EXPECT_GT(knew, 1e-3) << "the pages never knew, so that this test could not fail";
  forget_documents(*memory);
  EXPECT_LT(largest_difference(first_logits(*chat), without), knew / 100);
  const Reply reply = say(*chat, saying_yes("Go on."));
  EXPECT_EQ(reply.usage.made_anew_tokens, 0) << "once is enough";
  EXPECT_TRUE(memory->verify({1.0, 0})->problems.empty());
}

// What reads at the end never had the document in view: it saw it through a spilled passage that did. Another
// conversation had a harmless one in its place; without their documents the two are the same.
TEST_F(DeepConversationTest, WhatWasSeenThroughOthersIsForgottenToo) {
  write("secret.md", kSecret);
  write("harmless.md", "The weather at the southern gate is mild as ever.\n");
  const auto memory = open();
  add(*memory);
  auto chat = begin(*memory, "main");
  auto other = begin(*memory, "other");
  const auto say_in_both = [&](SayOptions options, const char* document) {
    if (document != nullptr) options.filter.sources = {(folder_ / "docs" / "harmless.md").string()};
    const Reply reply = say(*other, options);
    if (document != nullptr) options.filter.sources = {(folder_ / "docs" / document).string()};
    EXPECT_EQ(say(*chat, options).recalled.size(), reply.recalled.size());
    return reply;
  };
  EXPECT_EQ(say_in_both(saying_yes(kQuestion, 1), "secret.md").recalled.size(), 1u);
  for (int turn = 1; turn < 12; ++turn) say_in_both(saying_yes(filler(turn)), nullptr);
  SayOptions recalling = saying_yes(kQuestion, 1);
  recalling.documents = false;
  const Reply reply = say_in_both(recalling, nullptr);
  ASSERT_EQ(reply.recalled.size(), 1u);
  EXPECT_TRUE(reply.recalled.front().as_computed);
  say_in_both(saying_yes(filler(12)), nullptr);
  const double knew = largest_difference(first_logits(*chat), first_logits(*other));
  EXPECT_GT(knew, 1e-3) << "the pages never knew, so that this test could not fail";
  const MemoryStats before = memory->stats().value();
  forget_documents(*memory);
  EXPECT_LT(memory->stats()->passages_with_kv, before.passages_with_kv - 2) << "spilled KV is gone at once";
  EXPECT_LT(largest_difference(first_logits(*chat), first_logits(*other)), knew / 100);
  // What was spilled is read from its own text now.
  const Reply again = say_in_both(recalling, nullptr);
  ASSERT_EQ(again.recalled.size(), 1u);
  EXPECT_FALSE(again.recalled.front().as_computed);
}

TEST_F(ConversationTest, AClosedConversationForgetsToo) {
  write("secret.md", kSecret);
  auto memory = open();
  add(*memory);
  {
    const auto chat = begin(*memory, "main", 512);
    const auto clean = begin(*memory, "clean", 512);
    for (int turn = 0; turn < 6; ++turn) {
      say(*clean, saying_yes(turn == 0 ? kQuestion : filler(turn)));
      say(*chat, saying_yes(turn == 0 ? kQuestion : filler(turn), turn == 0 ? 1 : 0));
    }
  }
  memory.reset();
  memory = open();
  {
    const auto chat = begin(*memory, "main", 512);
    const auto clean = begin(*memory, "clean", 512);
    EXPECT_GT(largest_difference(first_logits(*chat), first_logits(*clean)), 1e-3) << "it still knows";
  }
  forget_documents(*memory);
  const auto chat = begin(*memory, "main", 512);
  const auto clean = begin(*memory, "clean", 512);
  EXPECT_LT(largest_difference(first_logits(*chat), first_logits(*clean)), 1e-3);
}

TEST_F(ConversationTest, WhatTheModelSaidOfItIsListedAndGoesWhenAsked) {
  write("secret.md", kSecret);
  const auto memory = open();
  add(*memory);
  const auto chat = begin(*memory, "main");
  SayOptions telling = saying(kQuestion, 1);
  telling.max_tokens = 32;
  telling.sampling.grammar = "root ::= \"Xylocanary44\"";
  ASSERT_EQ(say(*chat, telling).text, "Xylocanary44");
  for (int turn = 1; turn < 12; ++turn) say(*chat, filler(turn));
  ForgetOptions asking;
  asking.sources = {(folder_ / "docs").string()};
  const auto derived = memory->derived(asking);
  ASSERT_TRUE(derived.ok()) << derived.error().message;
  ASSERT_FALSE(derived->empty());
  EXPECT_EQ(derived->front().text, "Xylocanary44");
  EXPECT_EQ(derived->front().conversation, "main");
  EXPECT_EQ(derived->front().message, 1);
  const int passages = memory->stats()->passages;
  const std::string erased = forget_documents(*memory, /*derived=*/true);
  EXPECT_NE(erased.find("Xylocanary44"), std::string::npos);
  const auto history = chat->history();
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->size(), 24u);
  EXPECT_TRUE(history->at(1).forgotten);
  EXPECT_EQ(history->at(1).text, "");
  EXPECT_EQ(history->at(0).text, kQuestion);
  EXPECT_EQ(memory->stats()->passages, passages - 1)
      << "all of the conversation's are there, the document's is not";
  SearchOptions searching;
  searching.filter.sources = {"chats/main"};
  searching.limit = 50;
  const auto found = memory->search("canary northern gate", searching);
  ASSERT_TRUE(found.ok());
  bool asked = false;
  for (const FoundPassage& passage : *found) {
    EXPECT_EQ(passage.text.find("Xylocanary44"), std::string::npos);
    asked = asked || passage.text.find(kQuestion) != std::string::npos;
  }
  EXPECT_TRUE(asked) << "what the user said stays";
  EXPECT_FALSE(stored_anywhere(folder_ / "memory", "Xylocanary44"));
  const Reply reply = say(*chat, "Go on.");
  EXPECT_EQ(reply.turn, 12);
  EXPECT_TRUE(memory->verify({1.0, 0})->problems.empty());
}

TEST_F(ConversationTest, NotDerivedWhereItWasNotInView) {
  write("secret.md", kSecret);
  const auto memory = open();
  add(*memory);
  const auto chat = begin(*memory, "main");
  for (int turn = 0; turn < 3; ++turn) say(*chat, filler(turn));
  ForgetOptions asking;
  asking.sources = {(folder_ / "docs").string()};
  EXPECT_TRUE(memory->derived(asking)->empty());
  forget_documents(*memory);
  EXPECT_EQ(say(*chat, "Go on.").usage.made_anew_tokens, 0);
}

// KV computed over stored pages is cached under what it was computed over: never exact, and gone when that
// is.
TEST_F(ConversationTest, CachedPrefixesOverReusedPagesAreNeitherExactNorKept) {
  write("secret.md", kSecret + paragraphs(30, "lantern"));
  const auto memory = open();
  add(*memory);
  AskOptions reusing = asking("The canary code of the northern gate?", ReadPolicy::kReuse);
  reusing.most_passages = 2;
  reusing.abstain = false;
  ask(*memory, reusing);
  AskOptions exact = reusing;
  exact.policy = ReadPolicy::kPrefix;
  const Answer read = ask(*memory, exact);
  EXPECT_GT(read.usage.evaluated_tokens, read.usage.memory_tokens_read) << "nothing of the other's is served";
  ASSERT_GT(ask(*memory, exact).usage.cached_tokens, 0);
  forget_documents(*memory);
  add(*memory);
  EXPECT_GT(ask(*memory, exact).usage.evaluated_tokens, read.usage.memory_tokens_read);
}

}  // namespace rhapsode
