// A conversation's turns: what is spilled, recalled, kept, forked.
#include "engine/conversation_fixture.h"

namespace rhapsode {

namespace {

const Reply* first_with_spill(const std::vector<Reply>& replies) {
  for (const Reply& reply : replies) {
    if (!reply.spilled.empty()) return &reply;
  }
  return nullptr;
}

}  // namespace

TEST_F(ConversationTest, SpillsWhatIsOldestAndEvaluatesNothingTwice) {
  const auto memory = open();
  const auto chat = begin(*memory, "main");
  const uint64_t rows_before = engine_->stats().rows;
  uint64_t expected = 0;
  std::vector<Reply> replies;
  for (int turn = 0; turn < 20; ++turn) {
    replies.push_back(say(*chat, filler(turn)));
    const TurnUsage& usage = replies.back().usage;
    // The message, the end of the turn, and every generated token but the last, which `end` reads.
    expected += static_cast<uint64_t>(usage.evaluated_tokens + usage.generated_tokens);
    EXPECT_EQ(usage.made_anew_tokens, 0);
    EXPECT_LE(usage.live_tokens, 256);
  }
  EXPECT_EQ(engine_->stats().rows - rows_before, expected);
  const Reply* spilling = first_with_spill(replies);
  ASSERT_NE(spilling, nullptr);
  EXPECT_GT(spilling->spilled.front().tokens, 0);
  EXPECT_EQ(spilling->spilled.front().source, "chats/main/0000000");
  EXPECT_EQ(spilling->spilled.front().first_message, 0);
  // Nothing is lost: every message is there, and every token is live or in a passage.
  const auto history = chat->history();
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->size(), 40u);
  EXPECT_EQ(history->at(38).text, filler(19));
  int64_t next = 0;
  for (const Reply& reply : replies) {
    for (const SpilledPassage& spilled : reply.spilled) {
      EXPECT_LE(spilled.first_message, next + 1);
      next = spilled.last_message;
    }
  }
}

TEST_F(ConversationTest, PassagesEndWithTurnsAndHoldEveryMessage) {
  const auto memory = open();
  const auto chat = begin(*memory, "main");
  // An answer that leaves a rest, which no later question shall be bundled with.
  const std::string answer = filler(1) + " " + filler(2) + " " + filler(3);
  for (int turn = 0; turn < 8; ++turn) {
    note(*chat, "user", "Who asked for the boat on day " + std::to_string(turn) + "?");
    note(*chat, "assistant", answer);
  }
  const auto passages = chat->passages();
  ASSERT_TRUE(passages.ok()) << passages.error().message;
  ASSERT_GE(passages->size(), 8u);
  int64_t next = 0;
  int tokens = 0;
  for (const SpilledPassage& passage : *passages) {
    // Nothing is left out, nothing is of two turns.
    EXPECT_TRUE(passage.first_message == next || passage.first_message == next - 1);
    EXPECT_EQ(passage.first_message / 2, passage.last_message / 2);
    next = passage.last_message + 1;
    tokens += passage.tokens;
  }
  EXPECT_EQ(next, 16);
  EXPECT_GT(tokens, chat->live_tokens());
}

TEST_F(ConversationTest, RecallsWhatWasSaidLongAgo) {
  const auto memory = open();
  const auto chat = begin(*memory, "main");
  const int turn_end = tokens_behind(say(*chat, "My zebra is called Quaggelina and lives in Thessaloniki."));
  for (int turn = 0; turn < 20; ++turn) say(*chat, filler(turn));
  const Reply reply = say(*chat, saying("Where does the zebra Quaggelina live?", 1));
  ASSERT_EQ(reply.recalled.size(), 1u);
  const RecalledPassage& recalled = reply.recalled.front();
  EXPECT_TRUE(recalled.conversation);
  EXPECT_TRUE(recalled.as_computed);
  EXPECT_NE(recalled.found.text.find("Quaggelina"), std::string::npos);
  EXPECT_EQ(recalled.found.passage.header.substr(0, 6), "[user,");
  // Read as it was computed: nothing of it is evaluated.
  EXPECT_EQ(tokens_behind(reply), turn_end);
}

// What was taken back or corrected is not told again: its words are left out of what is recalled.
TEST_F(ConversationTest, OutdatedWordsAreNotRecalled) {
  const auto memory = open();
  const auto chat = begin(*memory, "main", 768);
  int day = 10;
  const auto tell = [&](const std::string& speaker, const std::string& text) {
    const std::string time = "2026-03-" + std::to_string(day++);
    NotedMessage message{"user", text, speaker, time};
    ASSERT_TRUE(chat->note(message).ok());
    note(*chat, "assistant", "Noted, thank you.");
    const auto told = remember(*memory, {text, speaker, time, "m" + std::to_string(day), ""});
    ASSERT_TRUE(told.ok()) << told.error().message;
    EXPECT_EQ(told->report.recorded, 1) << text;
  };
  tell("Ana", "My favourite tea is quaggelina. I have asked for a pot of it.");
  tell("Ben", "My favourite tea is quaggelina.");
  tell("Ana", "My locker code is 417417.");
  for (int turn = 0; turn < 16; ++turn) say(*chat, filler(turn));
  const auto recalled = [&](ReadPolicy policy) {
    std::string text;
    SayOptions options = saying("Which locker code and which favourite tea, quaggelina, does Ana have?", 8);
    options.policy = policy;
    const Reply reply = say(*chat, options);
    for (const RecalledPassage& one : reply.recalled) {
      if (!one.conversation) continue;
      text += one.found.text + "\n";
      if (one.found.text.find("a pot of it") == std::string::npos) continue;
      EXPECT_EQ(one.as_computed, policy == ReadPolicy::kReuse && text.find("Ana: My") != std::string::npos);
    }
    return text;
  };
  EXPECT_NE(recalled(ReadPolicy::kReuse).find("Ana: My favourite tea is quaggelina"), std::string::npos);
  tell("Ana", "Actually, my favourite tea is mint, not quaggelina.");
  tell("Ana", "Please forget my locker code.");
  for (int turn = 0; turn < 16; ++turn) say(*chat, filler(turn));
  for (const ReadPolicy policy : {ReadPolicy::kReuse, ReadPolicy::kFull}) {
    const std::string now = recalled(policy);
    EXPECT_EQ(now.find("Ana: My favourite tea is quaggelina"), std::string::npos) << now;
    EXPECT_EQ(now.find("417417"), std::string::npos) << now;
    // What else was said stays, and what somebody else said.
    EXPECT_NE(now.find("I have asked for a pot of it."), std::string::npos) << now;
    EXPECT_NE(now.find("Ben: My favourite tea is quaggelina."), std::string::npos) << now;
  }
}

TEST_F(ConversationTest, GoesOnAfterARestart) {
  auto memory = open();
  auto chat = begin(*memory, "main");
  for (int turn = 0; turn < 12; ++turn) say(*chat, filler(turn));
  const std::vector<float> before = first_logits(*chat);
  const int live = chat->live_tokens();
  chat.reset();
  memory.reset();
  memory = open();
  chat = begin(*memory, "main");
  const std::vector<float> after = first_logits(*chat);
  EXPECT_EQ(chat->live_tokens(), live);
  EXPECT_LT(largest_difference(before, after), 1e-2);
  const Reply reply = say(*chat, "Go on.");
  EXPECT_EQ(reply.turn, 12);
}

TEST_F(ConversationTest, M15_AMessageLargerThanTheLiveBudgetIsReadInSteps) {
  const auto memory = open();
  const auto chat = begin(*memory, "main");
  std::string text = "Gate code is 7b21. ";
  for (int fact = 0; fact < 200; ++fact) text += "Fact " + std::to_string(fact) + " says nothing at all. ";
  const Reply reply = say(*chat, text + "What is the gate code?");
  EXPECT_GT(reply.usage.message_tokens, 1000);
  EXPECT_LE(reply.usage.live_tokens, 256);
  EXPECT_GT(reply.spilled.size(), 5u);
  const auto history = chat->history();
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->front().text, text + "What is the gate code?");
  std::string spilled;
  SearchOptions searching;
  searching.filter.sources = {"chats/main"};
  searching.limit = 50;
  const auto detail = memory->search("gate code", searching);
  ASSERT_TRUE(detail.ok()) << detail.error().message;
  for (const FoundPassage& found : *detail) spilled += found.text;
  EXPECT_NE(spilled.find("Gate code is 7b21"), std::string::npos);
}

TEST_F(ConversationTest, WhatIsRecalledIsInView) {
  write("secret.md", "The canary code of the northern gate is ZX-4417-Q.\n");
  const auto memory = open();
  add(*memory);
  const auto chat = begin(*memory, "main");
  say(*chat, filler(0));
  const auto logits = [&](int passages, ReadPolicy policy) {
    SayOptions options = saying("The canary code of the northern gate?", passages);
    options.policy = policy;
    const auto score = chat->score(options, "red green");
    EXPECT_TRUE(score.ok()) << score.error().message;
    return score.ok() ? score->logits.front() : std::vector<float>{};
  };
  const std::vector<float> blind = logits(0, ReadPolicy::kReuse);
  EXPECT_GT(largest_difference(blind, logits(1, ReadPolicy::kReuse)), 1e-3);
  EXPECT_GT(largest_difference(blind, logits(1, ReadPolicy::kFull)), 1e-3);
}

TEST_F(ConversationTest, ConversationsDoNotHearOneAnother) {
  const auto memory = open();
  const auto chat = begin(*memory, "one");
  say(*chat, "My zebra is called Quaggelina and lives in Thessaloniki.");
  for (int turn = 0; turn < 20; ++turn) say(*chat, filler(turn));
  const auto other = begin(*memory, "two");
  SayOptions asking = saying("Where does the zebra Quaggelina live?", 3);
  EXPECT_TRUE(say(*other, asking).recalled.empty());
  asking.other_conversations = true;
  const Reply reply = say(*other, asking);
  ASSERT_FALSE(reply.recalled.empty());
  EXPECT_EQ(reply.recalled.back().found.passage.source.substr(0, 10), "chats/one/");
  EXPECT_FALSE(reply.recalled.back().as_computed);
  // Nor does a question to the memory, unless it names the conversation.
  SearchOptions searching;
  EXPECT_TRUE(memory->search("zebra Quaggelina", searching).value().empty());
  searching.filter.sources = {"chats/one"};
  EXPECT_FALSE(memory->search("zebra Quaggelina", searching).value().empty());
}

TEST_F(ConversationTest, C5_AForkSharesAllThereIsAndTheOriginalIsUntouched) {
  const auto memory = open();
  const auto chat = begin(*memory, "main");
  const int turn_end = tokens_behind(say(*chat, "Hello."));
  for (int turn = 0; turn < 19; ++turn) say(*chat, filler(turn));
  const MemoryStats before = memory->stats().value();
  const uint64_t rows = engine_->stats().rows;
  const uint64_t used = engine_->stats().kv_used_bytes;
  auto forked = chat->fork("branch");
  ASSERT_TRUE(forked.ok()) << forked.error().message;
  EXPECT_EQ(engine_->stats().rows, rows);
  EXPECT_LE(engine_->stats().kv_used_bytes, used);  // the last turn may still have been giving pages back
  const MemoryStats after = memory->stats().value();
  EXPECT_EQ(after.kv_bytes, before.kv_bytes);
  EXPECT_EQ(after.code_bytes, before.code_bytes);
  EXPECT_EQ(after.contents, before.contents);
  const std::vector<float> expected = first_logits(*chat);
  EXPECT_EQ(first_logits(**forked), expected);
  say(**forked, "Only the branch hears this.");
  EXPECT_EQ(first_logits(*chat), expected);
  const Reply next = say(*chat, "Go on.");
  EXPECT_EQ(tokens_behind(next), turn_end);
  EXPECT_EQ(chat->history()->size(), 42u);
  // The original goes; the branch keeps all it shares.
  ForgetOptions forgetting;
  forgetting.sources = {"chats/main"};
  ASSERT_TRUE(memory->forget(forgetting).ok());
  EXPECT_FALSE(chat->say(saying("Are you there?")).ok());
  const Reply kept = say(**forked, "Are you there?");
  EXPECT_EQ(kept.usage.made_anew_tokens, 0);
}

}  // namespace rhapsode
