#include "eval/long_conversation.h"

#include <gmock/gmock.h>

#include <map>

#include "support/temporary_folder.h"

namespace rhapsode::eval {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

Dataset chats() {
  Dataset data;
  for (int chat = 0; chat < 3; ++chat) {
    SpokenConversation spoken{"chat-" + std::to_string(chat), {}};
    for (int i = 0; i < 10 * (chat + 1); ++i) {
      data.documents.push_back({"", "chat " + std::to_string(chat) + ", message " + std::to_string(i), ""});
      const bool user = i % 2 == 0;
      spoken.messages.push_back({static_cast<int>(data.documents.size()) - 1, user ? "user" : "assistant",
                                 user ? "user-" + std::to_string(chat) : "", "2024-03-05"});
    }
    data.conversations.push_back(std::move(spoken));
  }
  return data;
}

LongNumbers small() {
  LongNumbers numbers;
  numbers.turns = 120;
  numbers.facts = 10;
  numbers.corrected = 4;
  numbers.retracted = 2;
  numbers.asked_after = 40;
  numbers.window = 50;
  return numbers;
}

TEST(LongScript, FactsAreToldAndAskedInTheirPlaces) {
  const Dataset data = chats();
  const auto script = write_script(data, small(), 3);
  ASSERT_TRUE(script.ok()) << script.error().message;
  ASSERT_THAT(script->turns, SizeIs(120));
  ASSERT_THAT(script->facts, SizeIs(10));
  std::map<ScriptTurn::Kind, int> kinds;
  std::map<std::string, int> order;  // of chats: next message
  for (size_t at = 0; at < script->turns.size(); ++at) {
    const ScriptTurn& turn = script->turns[at];
    ++kinds[turn.kind];
    EXPECT_FALSE(turn.text.empty());
    EXPECT_FALSE(turn.time.empty());
    if (turn.fact >= 0) continue;
    // Each chat in its own order, and from its beginning when all have been said.
    int& next = order[turn.speaker];
    const std::string chat = "chat " + turn.speaker.substr(5) + ", message ";
    if (turn.text != chat + std::to_string(next)) next = 0;
    EXPECT_EQ(turn.text, chat + std::to_string(next));
    EXPECT_EQ(turn.answer, chat + std::to_string(next + 1));
    next += 2;
  }
  EXPECT_EQ(kinds[ScriptTurn::Kind::kFact], 10 + 4 + 2);
  EXPECT_EQ(kinds[ScriptTurn::Kind::kAsk], 10);
  EXPECT_EQ(kinds[ScriptTurn::Kind::kAnswered], (120 - 26) / 10);
  for (size_t i = 0; i < script->facts.size(); ++i) {
    const ScriptedFact& fact = script->facts[i];
    EXPECT_EQ(script->turns[static_cast<size_t>(fact.asked)].fact, static_cast<int>(i));
    EXPECT_GE(fact.asked, fact.last_told + 40);
    EXPECT_LE(fact.asked, fact.last_told + 60);
    EXPECT_EQ(fact.corrected.empty(), fact.fate != FactFate::kCorrected);
    EXPECT_NE(fact.value, fact.corrected);
  }
  const auto same = write_script(data, small(), 3);
  EXPECT_EQ(same->turns[60].text, script->turns[60].text);
  EXPECT_NE(write_script(data, small(), 4)->facts[0].value, script->facts[0].value);
}

// What the script says of facts is what the rules read out of it.
TEST(LongScript, EveryFactIsToldInWordsThatAreUnderstood) {
  const auto script = write_script(chats(), small(), 5);
  ASSERT_TRUE(script.ok());
  std::vector<FactInfo> known;
  for (const ScriptTurn& turn : script->turns) {
    if (turn.kind != ScriptTurn::Kind::kFact) continue;
    const std::vector<FactStatement> found =
        find_facts({turn.text, turn.speaker, turn.time, "id", ""}, known);
    ASSERT_THAT(found, SizeIs(1)) << turn.text;
    const FactStatement& told = found.front();
    EXPECT_EQ(told.subject, turn.speaker);
    std::erase_if(known, [&](const FactInfo& fact) {
      return fact.subject == told.subject && fact.attribute == told.attribute;
    });
    if (told.action == FactAction::kRetracted) continue;
    FactInfo info;
    info.subject = told.subject;
    info.attribute = told.attribute;
    info.value = told.value;
    info.current = true;
    known.push_back(info);
  }
  EXPECT_THAT(known, SizeIs(8));
  for (const ScriptedFact& fact : script->facts) {
    const std::string& value = fact.corrected.empty() ? fact.value : fact.corrected;
    const bool there = std::any_of(known.begin(), known.end(), [&](const FactInfo& info) {
      return info.subject == fact.person && info.value == value;
    });
    EXPECT_EQ(there, fact.fate != FactFate::kRetracted) << fact.question;
  }
}

TEST(LongScript, NumbersThatDoNotFitAreRefused) {
  LongNumbers late = small();
  late.asked_after = 100;
  ASSERT_FALSE(write_script(chats(), late, 1).ok());
  EXPECT_THAT(write_script(chats(), late, 1).error().message, HasSubstr("do not fit 120 turns"));
  LongNumbers many = small();
  many.retracted = 7;
  EXPECT_FALSE(write_script(chats(), many, 1).ok());
  EXPECT_FALSE(write_script({}, small(), 1).ok());
  const LongNumbers tenth = scaled(LongNumbers{}, 300);
  EXPECT_EQ(tenth.facts, 5);
  EXPECT_EQ(tenth.asked_after, 100);
  EXPECT_EQ(tenth.window, 25);
  EXPECT_TRUE(write_script(chats(), tenth, 1).ok());
}

// Remembers by the rules; answers from what is in force, or, when told to err, what was first said.
class FakeTalk final : public Talk {
 public:
  Result<rhapsode::Reply> note(const NotedMessage& message) override {
    notes.push_back(message);
    rhapsode::Reply reply;
    reply.usage.message_tokens = 100;
    return reply;
  }
  Result<rhapsode::Reply> say(const SayOptions& options) override {
    if (fail) return make_error(ErrorKind::kTooLarge, "it does not fit");
    said.push_back(options);
    rhapsode::Reply reply;
    reply.text = "I do not know.";
    for (const FactInfo& fact : errs ? ever_ : known_) {
      const bool asked = options.text.find(fact.subject) != std::string::npos;
      const std::string word = fact.attribute == "home"       ? "town"
                               : fact.attribute == "employer" ? "company"
                                                              : fact.attribute;
      if (!asked || options.text.find(word) == std::string::npos) continue;
      reply.text = "It is " + fact.value + ".";
      RecalledPassage recalled;
      recalled.found.text = fact.value;
      reply.recalled = {recalled};
      break;
    }
    reply.timing.total_ms = 20;
    reply.timing.route_ms = 2;
    return reply;
  }
  Status remember(const HeardMessage& message) override {
    for (const FactStatement& told : find_facts(message, known_)) {
      std::erase_if(known_, [&](const FactInfo& fact) {
        return fact.subject == told.subject && fact.attribute == told.attribute;
      });
      FactInfo info;
      info.subject = told.subject;
      info.attribute = told.attribute;
      info.value = told.value;
      info.current = true;
      if (told.action == FactAction::kRetracted) continue;
      known_.push_back(info);
      ever_.push_back(info);
    }
    return {};
  }
  Result<std::vector<FactInfo>> facts() override { return known_; }
  uint64_t resident_bytes() override { return uint64_t{64} << 20; }

  bool errs = false;
  bool fail = false;
  std::vector<NotedMessage> notes;
  std::vector<SayOptions> said;

 private:
  std::vector<FactInfo> known_;
  std::vector<FactInfo> ever_;
};

class LongConversationTest : public test::TemporaryFolder {
 protected:
  Status run(FakeTalk& talk, size_t most_turns = 1000) {
    script_ = *write_script(chats(), small(), 3);
    options_.window = small().window;
    RH_TRY(ResultsFile results, ResultsFile::open(folder_ / "talk.jsonl", Json::object(), false));
    LongConversation conversation(script_, options_, talk);
    RH_TRY_STATUS(conversation.run(results, [&](size_t done, size_t) { return done < most_turns; }));
    records_ = read_results(folder_ / "talk.jsonl")->records;
    return {};
  }
  double sum(const std::string& score) const {
    double total = 0;
    for (const Record& record : records_) {
      if (record.scores.contains(score)) total += record.scores.at(score);
    }
    return total;
  }
  Script script_;
  LongOptions options_;
  std::vector<Record> records_;
};

TEST_F(LongConversationTest, WhatIsRememberedIsRight) {
  FakeTalk talk;
  ASSERT_TRUE(run(talk).ok());
  EXPECT_EQ(sum("right"), 10);
  EXPECT_EQ(sum("recorded"), 10);
  EXPECT_EQ(sum("found"), 8);
  EXPECT_EQ(sum("retracted_told") + sum("old_told") + sum("retracted_found"), 0);
  // Two whole windows and a rest.
  EXPECT_THAT(records_, SizeIs(10 + 3));
  EXPECT_EQ(sum("resident_mb"), 3 * 64);
  EXPECT_GT(sum("tokens"), 100 * 100);
  EXPECT_EQ(talk.said.size(), 10u + 94 / 10);
  EXPECT_EQ(talk.notes.size(), 2 * (120 - talk.said.size()));
  EXPECT_EQ(talk.notes[0].role, "user");
  EXPECT_EQ(talk.notes[1].speaker, "");
  for (const SayOptions& options : talk.said) EXPECT_EQ(options.max_tokens, 32);
}

TEST_F(LongConversationTest, WhatWasTakenBackOrCorrectedCountsWhenTold) {
  FakeTalk talk;
  talk.errs = true;
  ASSERT_TRUE(run(talk).ok());
  EXPECT_EQ(sum("retracted_told"), 2);
  EXPECT_EQ(sum("old_told"), 4);
  EXPECT_EQ(sum("right"), 4);
}

TEST_F(LongConversationTest, AFailedTurnEndsTheRunAndTheCallerMayStopIt) {
  FakeTalk talk;
  talk.fail = true;
  EXPECT_EQ(run(talk).error().kind, ErrorKind::kTooLarge);
  std::filesystem::remove(folder_ / "talk.jsonl");
  FakeTalk stopped;
  EXPECT_EQ(run(stopped, 3).error().kind, ErrorKind::kCancelled);
  EXPECT_EQ(stopped.notes.size(), 6u);
}

TEST(Quantiles, OfFewValues) {
  std::vector<double> none, some{3, 1, 2};
  EXPECT_EQ(median_of(none), 0);
  EXPECT_EQ(median_of(some), 2);
  EXPECT_EQ(p95_of(some), 3);
}

}  // namespace
}  // namespace rhapsode::eval
