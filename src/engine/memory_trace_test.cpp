// The trace of an answer: what was read how, and where attention went.
#include <gmock/gmock.h>

#include <numeric>

#include "engine/memory_fixture.h"

namespace rhapsode {
namespace {

class MemoryTrace : public MemoryTest {
 protected:
  std::unique_ptr<Memory> lamps(int count = 6) {
    for (int i = 0; i < count; ++i)
      write("d" + std::to_string(i) + ".txt", paragraphs(12, "lamp" + std::to_string(i)));
    auto memory = open();
    add(*memory);
    return memory;
  }
  AskOptions tracing(const std::string& question, ReadPolicy policy) {
    AskOptions options = asking(question, policy);
    options.trace = true;
    options.self_check = 0;  // would add to what is probed now and then
    return options;
  }
  static double sum(const TracedToken& token) {
    return std::accumulate(token.passages.begin(), token.passages.end(),
                           static_cast<double>(token.prefix) + token.question + token.answer);
  }
};

TEST_F(MemoryTrace, SaysWhatWasFoundReadAndAttendedTo) {
  const auto memory = lamps();
  for (const ReadPolicy policy :
       {ReadPolicy::kReuse, ReadPolicy::kPrefix, ReadPolicy::kFull, ReadPolicy::kBlend}) {
    SCOPED_TRACE(to_string(policy));
    AskOptions options = tracing("Where is lamp3?", policy);
    const Answer answer = ask(*memory, options);
    options.trace = false;
    const Answer plain = ask(*memory, options);
    EXPECT_EQ(answer.text, plain.text);
    EXPECT_FALSE(plain.trace.has_value());
    ASSERT_TRUE(answer.trace.has_value());
    const AnswerTrace& trace = *answer.trace;
    ASSERT_EQ(trace.routings.size(), 1u);
    const TracedRouting& routing = trace.routings.front();
    EXPECT_EQ(routing.cause, RouteCause::kQuestion);
    EXPECT_EQ(routing.query, "Where is lamp3?");
    ASSERT_GE(routing.found.size(), answer.passages.size()) << "what did not fit the budget was found, too";
    EXPECT_EQ(routing.found.front().passage.id, answer.passages.back().passage.id) << "best last";
    EXPECT_EQ(routing.found.front().keywords, answer.passages.back().keywords);
    ASSERT_EQ(routing.places.size(), answer.passages.size());
    ASSERT_EQ(trace.passages.size(), answer.passages.size());
    EXPECT_EQ(routing.evaluated_tokens, answer.usage.evaluated_tokens);
    int32_t next = routing.places.front().position;
    for (size_t i = 0; i < routing.places.size(); ++i) {
      const TracedPlace& place = routing.places[i];
      EXPECT_EQ(place.passage, answer.passages[i].passage.id);
      EXPECT_EQ(place.passage, routing.joined[i]);
      EXPECT_EQ(place.passage, trace.passages[i].id);
      EXPECT_EQ(place.position, next);
      next += place.tokens;
      EXPECT_EQ(
          place.reading.exact_tokens + place.reading.approximate_tokens + place.reading.recomputed_tokens,
          place.tokens);
    }
    ASSERT_EQ(static_cast<int>(trace.tokens.size()), answer.usage.generated_tokens);
    EXPECT_EQ(answer.usage.probe_tokens, plain.usage.probe_tokens + trace.probe_tokens);
    EXPECT_EQ(trace.probe_tokens, answer.usage.generated_tokens);
    EXPECT_EQ(trace.tokens.front().answer, 0) << "nothing of the answer was there";
    std::string text;
    for (const TracedToken& token : trace.tokens) {
      text += token.text;
      ASSERT_EQ(token.passages.size(), routing.places.size());
      EXPECT_NEAR(sum(token), 1, 1e-4);
      EXPECT_GT(token.question, 0);
      EXPECT_GT(token.entropy, 0);
      EXPECT_GT(*std::min_element(token.passages.begin(), token.passages.end()), 0);
    }
    EXPECT_GT(trace.tokens.back().answer, 0);
    std::vector<int32_t> tokens;
    for (const TracedToken& token : trace.tokens) tokens.push_back(token.token);
    EXPECT_EQ(text, engine_->detokenize(tokens));
  }
}

// Stored KV of a first passage is exact, so where the model looks is the same as under full attention,
// although its pages are cut differently, are shared, and belong to the passage for another reason.
TEST_F(MemoryTrace, AttentionOverStoredKvIsThatOfTheSameTextEvaluated) {
  const auto memory = lamps(1);
  const Answer full = ask(*memory, tracing("Where is the lamp?", ReadPolicy::kFull));
  const Answer reuse = ask(*memory, tracing("Where is the lamp?", ReadPolicy::kReuse));
  ASSERT_EQ(full.text, reuse.text);
  ASSERT_TRUE(full.trace && reuse.trace);
  ASSERT_EQ(full.trace->tokens.size(), reuse.trace->tokens.size());
  for (size_t i = 0; i < full.trace->tokens.size(); ++i) {
    const TracedToken& a = full.trace->tokens[i];
    const TracedToken& b = reuse.trace->tokens[i];
    ASSERT_EQ(a.passages.size(), b.passages.size());
    EXPECT_NEAR(a.passages.front(), b.passages.front(), 2e-3);
    EXPECT_NEAR(a.prefix, b.prefix, 2e-3);
    EXPECT_NEAR(a.question, b.question, 2e-3);
    EXPECT_NEAR(a.answer, b.answer, 2e-3);
    EXPECT_NEAR(a.entropy, b.entropy, 1e-2);
  }
}

TEST_F(MemoryTrace, PassagesAtOnePlaceAreToldApart) {
  const auto memory = lamps();
  AskOptions options = tracing("Where is lamp3?", ReadPolicy::kReuse);
  options.order = ReadOrder::kParallel;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace.has_value());
  const auto& places = answer.trace->routings.front().places;
  ASSERT_GT(places.size(), 1u);
  EXPECT_EQ(places.front().position, places.back().position);
  for (const TracedToken& token : answer.trace->tokens) {
    EXPECT_NEAR(sum(token), 1, 1e-4);
    EXPECT_GT(*std::min_element(token.passages.begin(), token.passages.end()), 0);
  }
}

TEST_F(MemoryTrace, OfPassagesThatAreGivenNothingIsFound) {
  const auto memory = lamps();
  AskOptions options = tracing("Where is lamp3?", ReadPolicy::kReuse);
  options.passages = {2, 1};
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace.has_value());
  EXPECT_TRUE(answer.trace->routings.front().found.empty());
  EXPECT_THAT(answer.trace->routings.front().joined, testing::ElementsAre(2, 1));
}

TEST_F(MemoryTrace, AnAnswerThatIsRefusedHasATraceOfWhatWasFound) {
  const auto memory = lamps();
  AskOptions options = tracing("zeppelin aerodrome 1234567 xylophone?", ReadPolicy::kReuse);
  options.abstain = true;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.abstained);
  ASSERT_TRUE(answer.trace.has_value());
  EXPECT_FALSE(answer.trace->routings.front().found.empty());
  EXPECT_TRUE(answer.trace->routings.front().joined.empty()) << "nothing was read";
  EXPECT_TRUE(answer.trace->tokens.empty());
}

TEST_F(MemoryTrace, HopsAreRoutingsOfTheOneAnswer) {
  const auto memory = lamps();
  AskOptions options = tracing("Where is lamp3?", ReadPolicy::kReuse);
  options.hops = 2;
  options.most_passages = 4;
  const Answer answer = ask(*memory, options);
  ASSERT_TRUE(answer.trace.has_value());
  const auto& routings = answer.trace->routings;
  ASSERT_EQ(routings.size(), 2u);
  EXPECT_EQ(routings[0].cause, RouteCause::kQuestion);
  EXPECT_EQ(routings[1].cause, RouteCause::kHop);
  EXPECT_EQ(routings[1].query, answer.hops[1].query);
  EXPECT_TRUE(routings[0].places.empty());
  EXPECT_EQ(routings[1].places.size(), answer.passages.size());
  EXPECT_EQ(routings[0].joined.size() + routings[1].joined.size(), answer.passages.size());
  EXPECT_EQ(answer.trace->passages.size(), answer.passages.size());
  for (const TracedToken& token : answer.trace->tokens) EXPECT_EQ(token.routing, 1);
}

TEST_F(MemoryTrace, AnAnswerBeginsWithWhatItIsGiven) {
  const auto memory = lamps();
  const Answer whole = ask(*memory, tracing("Where is lamp3?", ReadPolicy::kReuse));
  ASSERT_TRUE(whole.trace.has_value());
  AskOptions options = tracing("Where is lamp3?", ReadPolicy::kReuse);
  std::string told;
  options.on_text = [&](std::string_view text) {
    told += text;
    return true;
  };
  for (size_t i = 0; i < 3; ++i) options.begin.push_back(whole.trace->tokens[i].token);
  options.max_tokens = static_cast<int>(whole.trace->tokens.size()) - 3;
  const Answer rest = ask(*memory, options);
  ASSERT_TRUE(rest.trace.has_value());
  EXPECT_EQ(rest.text, told);
  ASSERT_EQ(rest.trace->tokens.size() + 3, whole.trace->tokens.size());
  for (size_t i = 0; i < rest.trace->tokens.size(); ++i) {
    EXPECT_EQ(rest.trace->tokens[i].token, whole.trace->tokens[i + 3].token);
    EXPECT_NEAR(rest.trace->tokens[i].answer, whole.trace->tokens[i + 3].answer, 2e-3);
  }
  options.on_text = [](std::string_view) { return false; };
  const Answer stopped = ask(*memory, options);
  EXPECT_EQ(stopped.finish, FinishReason::kCancelled);
  EXPECT_EQ(stopped.usage.generated_tokens, 0);
  options.on_text = nullptr;
  options.begin = {1 << 20};
  EXPECT_EQ(memory->ask(options).error().kind, ErrorKind::kInvalidArgument);
  options.begin = {1};
  options.sampling.grammar = "root ::= \"a\"";
  EXPECT_EQ(memory->ask(options).error().kind, ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace rhapsode
