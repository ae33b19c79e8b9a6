// Conversations with a real model: that what was said long ago is found and used, and that what is forgotten is
// known no more. Slow tier.
#include <gtest/gtest.h>

#include <fstream>

#include "rhapsode/conversation.h"
#include "support/temporary_folder.h"
#include "support/test_models.h"
#include "text/logits.h"

namespace rhapsode {

namespace fs = std::filesystem;

namespace {

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
  // Mean nats a token of the answer.
  static double likelihood(Conversation& conversation, const std::string& question, const std::string& answer) {
    const auto score = conversation.score(saying(question, 0), answer);
    EXPECT_TRUE(score.ok()) << score.error().message;
    double total = 0;
    for (size_t i = 0; i < score->tokens.size(); ++i) {
      total += text::log_softmax_of(score->logits[i], score->tokens[i]).value();
    }
    return total / static_cast<double>(score->tokens.size());
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;
};

constexpr const char* kModel = "qwen2.5-coder-0.5b";
constexpr char kCode[] = "ZX-4417-Q";

std::string chatter(int turn) {
  constexpr const char* kThings[] = {"the harbour", "the old mill", "a recipe for bread", "the garden", "chess"};
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
    recalled = recalled || (passage.as_computed && passage.found.text.find("Pfefferminz") != std::string::npos);
  }
  EXPECT_TRUE(recalled);
}

TEST_F(RealConversation, NoPageKnowsAForgottenCanary) {
  RH_REQUIRE_MODEL(path, kModel);
  open(path);
  fs::create_directories(folder_ / "docs");
  std::ofstream(folder_ / "docs" / "gate.md") << "The canary code of the northern gate is " << kCode
                                              << ". Who wants to pass the northern gate says " << kCode << ".\n";
  AddOptions adding;
  adding.paths = {(folder_ / "docs").string()};
  ASSERT_TRUE(memory_->add(adding).ok());
  const auto chat = begin("main");
  const auto clean = begin("clean");
  const std::string question = "What is the canary code of the northern gate?";
  for (int turn = 0; turn < 3; ++turn) {
    SayOptions options = saying(turn == 0 ? question : chatter(turn), 0);
    options.sampling.grammar = "root ::= \"I will not say it here.\"";
    ASSERT_TRUE(clean->say(options).ok());
    options.most_passages = turn == 0 ? 1 : 0;
    const auto reply = chat->say(options);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->recalled.size(), turn == 0 ? 1u : 0u);
  }
  const double never = likelihood(*clean, question, kCode);
  const double knew = likelihood(*chat, question, kCode);
  RecordProperty("nats_never", std::to_string(never));
  RecordProperty("nats_knew", std::to_string(knew));
  EXPECT_GT(knew, never + 0.25) << "nothing to forget, so that this test could not fail";
  ForgetOptions forgetting;
  forgetting.sources = {(folder_ / "docs").string()};
  ASSERT_TRUE(memory_->forget(forgetting).ok());
  const double knows = likelihood(*chat, question, kCode);
  RecordProperty("nats_knows", std::to_string(knows));
  EXPECT_LT(std::abs(knows - never), (knew - never) / 10);
}

}  // namespace rhapsode
