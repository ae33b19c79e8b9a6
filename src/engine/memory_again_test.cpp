// Routing again within an answer: the answer goes on as if what joined had been read from the start.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine/memory_fixture.h"
#include "engine/two_hop_fixture.h"

namespace rhapsode {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class MemoryAgain : public MemoryTest {
 protected:
  void adjust(EngineOptions& options) const override { options.deterministic = true; }

  // Twelve short documents: a question about one finds few of them.
  std::unique_ptr<Memory> town() {
    for (int i = 0; i < 12; ++i) write(fmt::format("{:02}.md", i), noise(i));
    auto memory = open();
    add(*memory);
    return memory;
  }
  AskOptions again(const std::string& question, ReadPolicy policy) {
    AskOptions options = asking(question, policy);
    options.trace = true;
    options.most_passages = 2;
    options.max_tokens = 20;
    options.abstain = false;
    options.reroute.every_tokens = 6;
    return options;
  }
  static int joined(const AnswerTrace& trace) {
    int count = 0;
    for (size_t i = 1; i < trace.routings.size(); ++i)
      count += static_cast<int>(trace.routings[i].joined.size());
    return count;
  }
};

// The property: behind every routing, the tokens are those of a fresh question that was given the same
// passages, in the same places, and the answer so far.
TEST_F(MemoryAgain, TheAnswerGoesOnAsIfAllHadBeenThereFromTheStart) {
  const auto memory = town();
  int joined_in_all = 0, changed = 0;
  for (const ReadPolicy policy : {ReadPolicy::kReuse, ReadPolicy::kPrefix, ReadPolicy::kFull,
                                  ReadPolicy::kBlend, ReadPolicy::kReorder}) {
    SCOPED_TRACE(to_string(policy));
    const AskOptions options = again("Who was an employer in Ward 3?", policy);
    const Answer answer = ask(*memory, options);
    ASSERT_TRUE(answer.trace.has_value());
    const AnswerTrace& trace = *answer.trace;
    EXPECT_EQ(answer.usage.reroutings, static_cast<int>(trace.routings.size()) - 1);
    EXPECT_EQ(answer.usage.joined_passages, joined(trace));
    joined_in_all += joined(trace);
    for (size_t r = 1; r < trace.routings.size(); ++r) {
      const TracedRouting& routing = trace.routings[r];
      EXPECT_EQ(routing.cause, RouteCause::kTokens);
      EXPECT_EQ(routing.token, 6 * static_cast<int>(r));
      EXPECT_THAT(routing.query, HasSubstr(options.question));
      if (routing.joined.empty()) continue;
      AskOptions fresh = options;
      fresh.reroute = {};
      fresh.passages.clear();
      for (const TracedPlace& place : routing.places) fresh.passages.push_back(place.passage);
      for (int i = 0; i < routing.token; ++i) fresh.begin.push_back(trace.tokens[i].token);
      fresh.max_tokens = options.max_tokens - routing.token;
      if (policy == ReadPolicy::kReorder) fresh.policy = ReadPolicy::kPrefix;  // it would place them anew
      const Answer same = ask(*memory, fresh);
      ASSERT_TRUE(same.trace.has_value());
      const size_t end = r + 1 < trace.routings.size() && !trace.routings[r + 1].joined.empty()
                             ? trace.routings[r + 1].token
                             : trace.tokens.size();
      ASSERT_GE(same.trace->tokens.size(), end - routing.token);
      const auto& places = same.trace->routings.front().places;
      ASSERT_EQ(places.size(), routing.places.size());
      for (size_t i = 0; i < places.size(); ++i) EXPECT_EQ(places[i].position, routing.places[i].position);
      for (size_t i = routing.token; i < end; ++i) {
        const TracedToken& told = trace.tokens[i];
        const TracedToken& expected = same.trace->tokens[i - routing.token];
        EXPECT_EQ(told.token, expected.token) << i;
        EXPECT_EQ(told.entropy, expected.entropy) << i;  // the same bytes of logits
        EXPECT_EQ(told.passages, expected.passages) << i;
        EXPECT_EQ(told.routing, static_cast<int>(r));
      }
      // Not the same without what joined.
      fresh.passages.resize(fresh.passages.size() - routing.joined.size());
      if (fresh.passages.empty()) continue;
      const Answer without = ask(*memory, fresh);
      changed += without.trace->tokens.front().entropy != trace.tokens[routing.token].entropy;
    }
  }
  EXPECT_GE(joined_in_all, 5);
  EXPECT_GE(changed, 5);
}

TEST_F(MemoryAgain, WhereNothingJoinsTheAnswerIsTheUndisturbedOne) {
  for (int i = 0; i < 2; ++i) write(fmt::format("{}.md", i), noise(i));
  const auto memory = open();
  add(*memory);
  AskOptions options = again("Who was an employer in Ward 1?", ReadPolicy::kReuse);
  AskOptions undisturbed = options;
  undisturbed.reroute = {};
  ask(*memory, undisturbed);  // the question's own KV is cached from here on
  const Answer plain = ask(*memory, undisturbed);
  options.reroute.every_tokens = 1;
  options.reroute.most = 100;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace && plain.trace);
  EXPECT_EQ(answer.text, plain.text);
  EXPECT_EQ(answer.usage.reroutings, answer.usage.generated_tokens - 1);
  EXPECT_EQ(answer.usage.joined_passages, 0);
  EXPECT_EQ(answer.usage.evaluated_tokens, plain.usage.evaluated_tokens);
  EXPECT_EQ(answer.usage.prompt_tokens, plain.usage.prompt_tokens);
  ASSERT_EQ(answer.trace->tokens.size(), plain.trace->tokens.size());
  for (size_t i = 0; i < plain.trace->tokens.size(); ++i) {
    EXPECT_EQ(answer.trace->tokens[i].entropy, plain.trace->tokens[i].entropy);
    EXPECT_EQ(answer.trace->tokens[i].passages, plain.trace->tokens[i].passages);
    EXPECT_EQ(answer.trace->tokens[i].routing, 0);
  }
}

// Case M12 within one answer: the second passage shares no word with the question, only with what the first
// sentence of the answer says.
TEST_F(MemoryAgain, ASentenceOfTheAnswerFindsTheSecondHop) {
  for (int i = 0; i < 40; ++i) write(fmt::format("noise/{:03}.md", i), noise(i));
  const TwoHop asked = two_hop(3);
  write(asked.first_name, asked.first);
  write(asked.second_name, asked.second);
  const auto memory = open();
  AddOptions adding;
  adding.index_only = true;
  add(*memory, adding);
  AskOptions options = again(asked.question, ReadPolicy::kReuse);
  options.rank = RankBy::kFused;
  options.links.on = false;  // links would bring it at once
  options.reroute = {};
  options.reroute.sentences = true;
  options.reroute.passages = 1;
  const std::string person = made_up_name(3), firm = made_up_name(163) + " Works";
  options.sampling.grammar = fmt::format("root ::= \"{} keeps the accounts at {}. \" [a-z ]*", person, firm);
  options.max_tokens = 60;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace.has_value());
  const auto sources_read = [&](const TracedRouting& routing) {
    std::vector<std::string> names;
    for (const TracedPlace& place : routing.places) {
      for (const PassageInfo& info : answer.trace->passages) {
        if (info.id == place.passage) names.push_back(fs::path(info.source).parent_path().filename());
      }
    }
    return names;
  };
  const auto& routings = answer.trace->routings;
  ASSERT_EQ(routings.size(), 2u) << answer.text;
  EXPECT_THAT(sources_read(routings[0]), Not(Contains("firms")));
  EXPECT_EQ(routings[1].cause, RouteCause::kSentence);
  EXPECT_THAT(routings[1].query, HasSubstr(firm));
  EXPECT_THAT(sources_read(routings[1]), Contains("firms"));
  EXPECT_TRUE(answer.text.starts_with(person + " keeps the accounts at " + firm + ".")) << answer.text;
  EXPECT_TRUE(std::any_of(routings[1].found.begin(), routings[1].found.end(), [&](const FoundPassage& found) {
    return found.passage.source.ends_with(asked.second_name);
  }));
  // The question alone does not find it.
  options.sampling.grammar = "root ::= \"It is not known. \" [a-z ]*";
  const Answer other = ask(*memory, options);
  ASSERT_TRUE(other.trace.has_value());
  for (const PassageInfo& info : other.trace->passages)
    EXPECT_FALSE(info.source.ends_with(asked.second_name));
}

TEST_F(MemoryAgain, WhenTheBudgetIsFullWhatIsLeastAttendedLeaves) {
  const auto memory = town();
  AskOptions options = again("Who was an employer in Ward 3?", ReadPolicy::kReuse);
  const Answer roomy = ask(*memory, options);
  ASSERT_TRUE(roomy.trace.has_value());
  ASSERT_GT(joined(*roomy.trace), 0);
  int most = 0;
  for (const PassageInfo& info : roomy.trace->passages) most = std::max(most, info.tokens);
  options.budget_tokens = 2 * most;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace.has_value());
  const AnswerTrace& trace = *answer.trace;
  int left = 0;
  const TracedRouting* before = nullptr;
  for (const TracedRouting& routing : trace.routings) {
    if (routing.places.empty()) continue;
    int tokens = 0;
    for (const TracedPlace& place : routing.places) tokens += place.tokens;
    EXPECT_LE(tokens, options.budget_tokens);
    for (const int64_t id : routing.left) {
      ++left;
      // Summed over the tokens that were chosen while it was read, none that stayed got less.
      const auto attention = [&](int64_t passage) {
        double sum = 0;
        for (const TracedToken& token : trace.tokens) {
          if (&trace.routings[token.routing] != before) continue;
          for (size_t i = 0; i < before->places.size(); ++i) {
            if (before->places[i].passage == passage) sum += token.passages[i];
          }
        }
        return sum;
      };
      ASSERT_NE(before, nullptr);
      for (const TracedPlace& place : routing.places) {
        const bool new_one = std::count(routing.joined.begin(), routing.joined.end(), place.passage) > 0;
        if (new_one) continue;
        EXPECT_GE(attention(place.passage) + 1e-6, attention(id));
      }
    }
    before = &routing;
  }
  EXPECT_GT(left, 0);
  EXPECT_EQ(answer.passages.size(), before->places.size());
}

TEST_F(MemoryAgain, TheModelsOwnSignalsAskForIt) {
  const auto memory = town();
  AskOptions options = again("Who was an employer in Ward 3?", ReadPolicy::kReuse);
  options.reroute = {};
  options.reroute.entropy = 0.5;  // a random model is unsure everywhere
  const Answer unsure = ask(*memory, options);
  ASSERT_TRUE(unsure.trace.has_value());
  ASSERT_EQ(unsure.usage.reroutings, options.reroute.most);
  EXPECT_EQ(unsure.trace->routings[1].cause, RouteCause::kEntropy);
  EXPECT_EQ(unsure.trace->routings[1].token, 1);
  EXPECT_GT(unsure.trace->routings[1].signal, 0.5);
  options.reroute.entropy = 50;
  EXPECT_EQ(ask(*memory, options).usage.reroutings, 0);
  options.reroute.entropy = 0;
  options.reroute.attention = 1;  // any fall
  options.max_tokens = 64;
  options.reroute.most = 1;
  const Answer looked = ask(*memory, options);
  ASSERT_TRUE(looked.trace.has_value());
  ASSERT_EQ(looked.usage.reroutings, 1) << "the share on memory falls while the answer grows";
  EXPECT_EQ(looked.trace->routings[1].cause, RouteCause::kAttention);
  EXPECT_LT(looked.trace->routings[1].signal, 1);
  EXPECT_GT(looked.trace->routings[1].signal, 0);
  EXPECT_EQ(looked.trace->routings[1].token % 8, 0);
  options.reroute.attention = 1e-6;
  EXPECT_EQ(ask(*memory, options).usage.reroutings, 0);
}

TEST_F(MemoryAgain, WhatIsToldIsTheAnswerAndCitationsRestOnWhatIsRead) {
  const auto memory = town();
  AskOptions options = again("Who was an employer in Ward 3?", ReadPolicy::kReuse);
  options.trace = false;
  options.cite = true;
  std::string told;
  options.on_text = [&](std::string_view text) {
    told += text;
    return true;
  };
  const Answer answer = ask(*memory, options);
  EXPECT_EQ(told, answer.text);
  EXPECT_GT(answer.usage.joined_passages, 0);
  EXPECT_EQ(answer.usage.cached_tokens + answer.usage.evaluated_tokens, answer.usage.prompt_tokens);
  EXPECT_EQ(answer.readings.size(), answer.passages.size());
  EXPECT_FALSE(answer.trace.has_value());
  int words = 0;
  options.on_text = [&](std::string_view) { return ++words < 9; };
  const Answer cancelled = ask(*memory, options);
  EXPECT_EQ(cancelled.finish, FinishReason::kCancelled);
  EXPECT_FALSE(cancelled.text.empty());
}

TEST_F(MemoryAgain, OthersGoOnWhileOneIsPaused) {
  const auto memory = town();
  const AskOptions options = [&] {
    AskOptions asked = again("Who was an employer in Ward 3?", ReadPolicy::kReuse);
    asked.reroute.every_tokens = 1;
    asked.reroute.most = 50;
    return asked;
  }();
  const Answer alone = ask(*memory, options);
  Request request;
  request.text = "Ward 3 is a place in which";
  request.max_tokens = 40;
  request.ignore_end = true;
  const auto expected = engine_->run(request);
  ASSERT_TRUE(expected.ok());
  std::atomic<bool> done{false};
  int others = 0;
  std::thread other([&] {
    while (!done) {
      const auto response = engine_->run(request);
      ASSERT_TRUE(response.ok()) << response.error().message;
      EXPECT_EQ(response->text, expected->text);
      ++others;
    }
  });
  const Answer beside = ask(*memory, options);
  done = true;
  other.join();
  EXPECT_EQ(beside.text, alone.text);
  EXPECT_GT(others, 0);
}

TEST_F(MemoryAgain, OptionsWithoutMeaningAreRefused) {
  const auto memory = town();
  const auto refused = [&](const std::function<void(AskOptions&)>& change) {
    AskOptions options = again("Who?", ReadPolicy::kReuse);
    change(options);
    const auto answer = memory->ask(options);
    return !answer.ok() && answer.error().kind == ErrorKind::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](AskOptions& o) { o.reroute.most = 0; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.reroute.passages = 0; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.reroute.entropy = -1; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.reroute.attention = 1.5; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.hops = 2; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.passages = {1}; }));
  EXPECT_TRUE(refused([](AskOptions& o) { o.most_passages = 0; }));
}

}  // namespace
}  // namespace rhapsode
