// Conversations over a tiny random model: answers are noise; what is counted, kept, dropped and found is not.
// Shared by conversation_*test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/memory_fixture.h"
#include "rhapsode/conversation.h"

namespace rhapsode {

class ConversationTest : public MemoryTest {
 protected:
  std::unique_ptr<Conversation> begin(Memory& memory, const std::string& name, int live = 256,
                                      const std::string& fork_from = "") {
    ConversationOptions options;
    options.name = name;
    options.live_budget_tokens = live;
    options.fork_from = fork_from;
    auto conversation = Conversation::open(memory, options);
    EXPECT_TRUE(conversation.ok()) << conversation.error().message;
    return conversation.ok() ? std::move(conversation).value() : nullptr;
  }

  SayOptions saying(const std::string& text, int most_passages = 0) {
    SayOptions options;
    options.text = text;
    options.max_tokens = 4;
    options.most_passages = most_passages;
    options.policy = ReadPolicy::kReuse;
    options.budget_tokens = 1024;
    return options;
  }

  Reply say(Conversation& conversation, const SayOptions& options) {
    auto reply = conversation.say(options);
    EXPECT_TRUE(reply.ok()) << reply.error().message;
    return reply.ok() ? std::move(reply).value() : Reply{};
  }
  // The same words whatever the model would have said.
  SayOptions saying_yes(const std::string& text, int most_passages = 0) {
    SayOptions options = saying(text, most_passages);
    options.sampling.grammar = "root ::= \"yes\"";
    return options;
  }
  std::string forget_documents(Memory& memory, bool derived = false) {
    ForgetOptions forgetting;
    forgetting.sources = {(folder_ / "docs").string()};
    forgetting.derived = derived;
    const auto report = memory.forget(forgetting);
    EXPECT_TRUE(report.ok()) << report.error().message;
    std::string derived_text;
    for (const DerivedAnswer& answer : report.value().derived) derived_text += answer.text + "\n";
    return derived_text;
  }

  Reply say(Conversation& conversation, const std::string& text) { return say(conversation, saying(text)); }
  void note(Conversation& conversation, const std::string& role, const std::string& text) {
    NotedMessage message;
    message.role = role;
    message.text = text;
    const auto noted = conversation.note(message);
    EXPECT_TRUE(noted.ok()) << noted.error().message;
  }
  std::vector<float> first_logits(Conversation& conversation) {
    const auto score = conversation.score(saying("And what now?"), "red green");
    EXPECT_TRUE(score.ok()) << score.error().message;
    return score.ok() ? score->logits.front() : std::vector<float>{};
  }
};

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

// Evaluated beside the message: the end of the turn, where nothing is evaluated twice.
inline int tokens_behind(const Reply& reply) {
  return reply.usage.evaluated_tokens - reply.usage.message_tokens;
}

inline std::string filler(int turn) {
  return "The weather of day " + std::to_string(turn) + " was mild, and nobody asked for the wooden boat.";
}

}  // namespace rhapsode
