// Conversations with a real model: what was said long ago is found and used. Slow tier.
#include <gtest/gtest.h>

#include "rhapsode/conversation.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"

namespace rhapsode {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "qwen2.5-coder-0.5b";

class RealConversation : public test::TemporaryFolder {
 protected:
  void open(const fs::path& model) {
    EngineOptions options;
    options.model = model;
    options.kv_cap_bytes = 512 << 20;
    options.cache_folder = folder_ / "home";
    engine_ = Engine::open(options).value();
    MemoryOptions opening;
    opening.folder = folder_ / "memory";
    opening.create = true;
    auto memory = Memory::open(*engine_, opening);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    memory_ = std::move(memory).value();
  }
  std::unique_ptr<Conversation> begin(const std::string& name) {
    ConversationOptions options;
    options.name = name;
    options.live_budget_tokens = 512;
    return Conversation::open(*memory_, options).value();
  }
  static SayOptions saying(const std::string& text, int passages) {
    SayOptions options;
    options.text = text;
    options.most_passages = passages;
    options.policy = ReadPolicy::kReuse;
    options.max_tokens = 24;
    return options;
  }
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;
};

std::string chatter(int turn) {
  constexpr const char* kThings[] = {"the harbour", "the old mill", "a recipe for bread", "the garden",
                                     "chess"};
  return "Let us talk about " + std::string(kThings[turn % 5]) + ". On day " + std::to_string(turn) +
         " nothing much happened there, as far as anybody remembers.";
}

}  // namespace

TEST_F(RealConversation, RecallsAFactStatedLongAgo) {
  RH_REQUIRE_MODEL(path, kModel);
  open(path);
  const auto chat = begin("main");
  NotedMessage fact;
  fact.text = "My daughter's rabbit is called Pfefferminz and it is seven years old.";
  ASSERT_TRUE(chat->note(fact).ok());
  for (int turn = 0; turn < 30; ++turn) {
    NotedMessage message;
    message.text = chatter(turn);
    ASSERT_TRUE(chat->note(message).ok());
  }
  const auto reply = chat->say(saying("What is my daughter's rabbit called?", 3));
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_NE(reply->text.find("Pfefferminz"), std::string::npos) << reply->text;
  bool recalled = false;
  for (const RecalledPassage& passage : reply->recalled) {
    recalled =
        recalled || (passage.as_computed && passage.found.text.find("Pfefferminz") != std::string::npos);
  }
  EXPECT_TRUE(recalled);
}

}  // namespace rhapsode
