#include "eval/evaluation.h"

#include <gmock/gmock.h>

#include <fstream>

#include "eval/fake_subject.h"
#include "eval/summary.h"
#include "support/temporary_folder.h"

namespace rhapsode::eval {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Pair;
using testing::SizeIs;

Dataset small_data() {
  Dataset data;
  data.documents = {{"Owl", "Owls hunt at night in Bern.", ""},
                    {"Bat", "Bats sleep by day. Bats live in Rome.", ""},
                    {"Cat", "Cats sleep all day.", ""},
                    {"Dog", "Dogs bark at night.", ""}};
  Question owl{"1", "animals", "", "Where do owls hunt?", {"Bern"}, {}, {{{{0}}}}, {{0}, {2}}};
  Question bat{"2", "animals", "", "Where do bats live?", {"Rome", "Roma"}, {}, {{{{1}}}}, {{3}, {1}}};
  data.questions = {owl, bat};
  data.own_documents = 4;
  return data;
}

Task small_task() {
  Task task;
  task.name = "animals";
  task.metrics = {"em", "f1"};
  task.contexts = *parse_contexts("closed,gold,full,reuse,routed,bm25,latent");
  task.default_contexts = task.contexts;
  task.recall_at = {1, 2};
  return task;
}

class EvaluationTest : public test::TemporaryFolder {
 protected:
  Result<Plan> plan() { return Plan::make(task_, data_, options_); }
  Record ask(int question, const Context& context) {
    plan_.emplace(*plan());
    evaluation_.emplace(*plan_, options_, subject_);
    return evaluation_->ask(data_.questions[static_cast<size_t>(question)], context);
  }
  Status run(const std::string& name, bool resume = false,
             const std::function<bool(const EvaluationProgress&)>& on_progress = {}) {
    plan_.emplace(*plan());
    evaluation_.emplace(*plan_, options_, subject_);
    RH_TRY(ResultsFile results, ResultsFile::open(folder_ / name, evaluation_->settings(), resume));
    return evaluation_->run(results, on_progress);
  }
  std::vector<Record> records(const std::string& name) { return read_results(folder_ / name)->records; }

  Dataset data_ = small_data();
  Task task_ = small_task();
  Options options_;
  FakeSubject subject_{data_};
  std::optional<Plan> plan_;
  std::optional<Evaluation> evaluation_;
};

TEST_F(EvaluationTest, ClosedReadsNothingAndGoldTheEvidence) {
  const Record closed = ask(0, Context::kClosed);
  EXPECT_EQ(closed.error, "");
  EXPECT_EQ(closed.scores.at("em"), 0);
  EXPECT_EQ(closed.scores.at("tokens_read"), 0);
  const Record gold = ask(0, Context::kGold);
  EXPECT_EQ(gold.prediction, "Bern");
  EXPECT_EQ(gold.scores.at("em"), 1);
  EXPECT_EQ(gold.scores.at("gold_read"), 1);
  EXPECT_THAT(gold.read, SizeIs(1));
}

TEST_F(EvaluationTest, ReuseReadsWhatFullReadsInTheSameOrder) {
  ask(1, Context::kFull);
  ask(1, Context::kReuse);
  ASSERT_GE(subject_.asked.size(), 2u);
  EXPECT_EQ(subject_.asked[0].places, subject_.asked[1].places);
  EXPECT_EQ(subject_.asked[0].policy, ReadPolicy::kFull);
  EXPECT_EQ(subject_.asked[1].policy, ReadPolicy::kReuse);
}

TEST_F(EvaluationTest, WhatIsReadFromStoredKvHasItMadeBefore) {
  ask(0, Context::kFull);
  EXPECT_TRUE(subject_.warmed.empty());
  ask(0, Context::kReuse);
  ASSERT_THAT(subject_.warmed, SizeIs(1));
  EXPECT_EQ(subject_.warmed[0], *subject_.asked.back().places);
  options_.passages = 2;
  ask(0, Context::kRouted);  // as the search ranks them
  ASSERT_THAT(subject_.warmed, SizeIs(2));
  EXPECT_THAT(subject_.warmed[1], SizeIs(2));
  EXPECT_EQ(subject_.warmed[1][0].document, 0);
  task_.cite = true;  // citing reads it too
  ask(0, Context::kFull);
  EXPECT_THAT(subject_.warmed, SizeIs(3));
  ask(0, Context::kClosed);
  EXPECT_THAT(subject_.warmed, SizeIs(3));
}

TEST_F(EvaluationTest, PolicyFullReadsFoundPassagesAsText) {
  options_.policy = ReadPolicy::kFull;
  const Record record = ask(0, Context::kBm25);
  EXPECT_EQ(subject_.asked.back().policy, ReadPolicy::kFull);
  EXPECT_EQ(record.scores.count("kl"), 0u);  // it would be compared with itself
}

TEST_F(EvaluationTest, DivergenceIsFromFullAttentionOverTheSameText) {
  // Row 0: softmax(1, 0) against softmax(1.5, 0); row 1 agrees.
  const double p = 1 / (1 + std::exp(-1.0)), q = 1 / (1 + std::exp(-1.5));
  const double expected = (p * std::log(p / q) + (1 - p) * std::log((1 - p) / (1 - q))) / 2;
  const Record reuse = ask(0, Context::kReuse);
  EXPECT_NEAR(reuse.scores.at("kl"), expected, 1e-6);
  EXPECT_EQ(reuse.scores.at("top1"), 1);
  EXPECT_NEAR(reuse.scores.at("nll"), -(std::log(q) + std::log(p)) / 2, 1e-6);
  EXPECT_NEAR(ask(0, Context::kBm25).scores.at("kl"), expected, 1e-6);
  EXPECT_EQ(ask(0, Context::kClosed).scores.at("kl"), 0);
  EXPECT_EQ(ask(0, Context::kFull).scores.count("kl"), 0u);
}

TEST_F(EvaluationTest, TopOneDisagreesWhenTheLikeliestTokenChanges) {
  subject_.reuse_shift = -3;
  EXPECT_EQ(ask(0, Context::kReuse).scores.at("top1"), 0.5);
}

TEST_F(EvaluationTest, SearchedContextsAreRanked) {
  const Record keywords = ask(1, Context::kBm25);  // finds 0, 1, ...; the evidence is 1
  EXPECT_EQ(keywords.scores.at("recall@1"), 0);
  EXPECT_EQ(keywords.scores.at("recall@2"), 1);
  EXPECT_EQ(keywords.scores.at("all_gold@2"), 1);
  // Best last: next to the question.
  EXPECT_EQ(keywords.read.back().passage.span.document, 0);
  const Record latent = ask(1, Context::kLatent);  // 3, 2, 1, 0
  EXPECT_EQ(latent.scores.at("recall@2"), 0);
  EXPECT_EQ(latent.scores.at("gold_read"), 1);
  const Record routed = ask(0, Context::kRouted);
  EXPECT_FALSE(subject_.asked.back().places.has_value());
  EXPECT_EQ(routed.scores.at("recall@1"), 1);
}

TEST_F(EvaluationTest, LookingAgainIsForTheMemoryItself) {
  const Context context = *context_named("evidence+links:reuse+again");
  const Record record = ask(0, context);
  const ReadRequest& asked = subject_.asked.back();
  EXPECT_FALSE(asked.places.has_value());
  EXPECT_EQ(asked.signal, Signal::kEvidence);
  EXPECT_TRUE(asked.links);
  EXPECT_TRUE(asked.reroute.sentences) << "unless other conditions are given";
  EXPECT_EQ(record.scores.count("reroutings"), 1u);
  options_.reroute.every_tokens = 8;
  ask(0, context);
  EXPECT_EQ(subject_.asked.back().reroute.every_tokens, 8);
  EXPECT_FALSE(subject_.asked.back().reroute.sentences);
  EXPECT_FALSE(ask(0, Context::kRouted).scores.contains("reroutings"));
  EXPECT_FALSE(subject_.asked.back().reroute.on());
}

TEST_F(EvaluationTest, AHandfulOfPassagesIsRead) {
  options_.passages = 1;
  EXPECT_EQ(ask(1, Context::kBm25).scores.at("gold_read"), 0);
  EXPECT_EQ(ask(0, Context::kBm25).scores.at("gold_read"), 1);
}

TEST_F(EvaluationTest, RecallOnlyAsksNothing) {
  options_.recall_only = true;
  const Record record = ask(1, Context::kBm25);
  EXPECT_TRUE(subject_.asked.empty());
  EXPECT_EQ(subject_.scored, 0);
  EXPECT_EQ(record.scores.at("recall@2"), 1);
  EXPECT_THAT(plan()->contexts(), ElementsAre(Context::kRouted, Context::kBm25, Context::kLatent));
  options_.contexts = "closed";
  EXPECT_THAT(plan().error().message, HasSubstr("routed, bm25 or latent"));
}

TEST_F(EvaluationTest, DistractorsAreNeighboursThatDoNotAnswer) {
  options_.distractors = 2;
  const Plan made = *plan();
  const std::vector<Span> places = made.own_places(data_.questions[1]);
  std::vector<int> documents;
  for (const Span& place : places) documents.push_back(place.document);
  EXPECT_THAT(documents, testing::UnorderedElementsAre(1));  // no other document shares a word with it
  data_.documents[2].text = "Bats of Rome.";                 // would answer
  data_.documents[3].text = "Bats of Oslo live long.";
  const std::vector<Span> again = plan()->own_places(data_.questions[1]);
  documents.clear();
  for (const Span& place : again) documents.push_back(place.document);
  EXPECT_THAT(documents, testing::UnorderedElementsAre(1, 3));
}

TEST_F(EvaluationTest, AGrowingPoolKeepsWhatASmallerOneHeld) {
  options_.contexts = "routed";
  options_.part = "1/2";
  options_.pool_tokens = 1;
  const Plan smallest = *plan();
  ASSERT_THAT(smallest.questions(), SizeIs(1));
  const int asked = smallest.questions().front();
  EXPECT_THAT(smallest.needed_documents(), ElementsAre(asked));  // its evidence, whatever the size
  std::vector<int> before = smallest.needed_documents();
  for (const int tokens : {12, 17, 100}) {
    options_.pool_tokens = tokens;
    const std::vector<int> grown = plan()->needed_documents();
    EXPECT_TRUE(std::includes(grown.begin(), grown.end(), before.begin(), before.end()));
    EXPECT_GT(grown.size(), before.size());
    before = grown;
  }
  EXPECT_THAT(before, SizeIs(4));
  options_.part = "2/2";
  EXPECT_THAT(plan()->questions(), ElementsAre(1 - asked));
}

TEST_F(EvaluationTest, PartsThatAreNoneAreRefused) {
  for (const char* part : {"0/2", "3/2", "1/3", "1", "1/", "/2", "1/2x", "-1/2", "a/b", "1/0"}) {
    options_.part = part;
    EXPECT_THAT(plan().error().message, HasSubstr("'" + options_.part + "' is no part of 2 questions"));
  }
}

TEST_F(EvaluationTest, CitationsAreJudgedAmongRightAnswersOnly) {
  task_.cite = true;
  options_.contexts = "full";
  plan_.emplace(*plan());
  const Record right = ask(1, Context::kFull);
  EXPECT_EQ(right.scores.at("cited"), 1);
  EXPECT_EQ(right.scores.at("cited_gold"), 1);
  EXPECT_EQ(right.scores.at("first_sentence"), 1);
  EXPECT_DOUBLE_EQ(right.scores.at("cite_share"), 0.2);
  data_.questions[1].answers = {"Paris"};
  const Record wrong = ask(1, Context::kFull);
  EXPECT_EQ(wrong.scores.count("cited"), 0u);
  EXPECT_EQ(wrong.scores.at("cite_ms"), 20);
}

TEST_F(EvaluationTest, AQuestionThatFailsIsRecordedAndTriedAgain) {
  subject_.fail_on = "Where do owls hunt?";
  options_.contexts = "full";
  ASSERT_TRUE(run("r.jsonl").ok());
  const std::vector<Record> first = records("r.jsonl");
  ASSERT_THAT(first, SizeIs(2));
  EXPECT_EQ(std::count_if(first.begin(), first.end(), [](const Record& r) { return r.error.empty(); }), 1);
  const Summary summary = summarise(first, "full", 1);
  EXPECT_EQ(summary.groups[0].contexts[0].errors, 1);
  EXPECT_THAT(summary.failures, ElementsAre(Pair("full", "it does not fit")));
  subject_.fail_on.clear();
  subject_.asked.clear();
  ASSERT_TRUE(run("r.jsonl", true).ok());
  EXPECT_THAT(subject_.asked, SizeIs(1));
  for (const Record& record : records("r.jsonl")) EXPECT_EQ(record.error, "");
}

TEST_F(EvaluationTest, WhatOnlyFailsIsStoppedAndCanGoOn) {
  options_.contexts = "full";
  const Question bat = data_.questions[1];
  data_.questions.clear();
  for (int i = 0; i < 30; ++i) {
    data_.questions.push_back(bat);
    data_.questions.back().id = std::to_string(i);
  }
  subject_.fail_on = bat.text;
  const Status stopped = run("r.jsonl");
  ASSERT_FALSE(stopped.ok());
  EXPECT_THAT(stopped.error().message,
              HasSubstr("20 questions in a row failed, the last because it does not fit"));
  EXPECT_THAT(records("r.jsonl"), SizeIs(20));
  subject_.fail_on.clear();
  ASSERT_TRUE(run("r.jsonl", true).ok());
  const std::vector<Record> all = records("r.jsonl");
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const Record& r) { return r.error.empty(); }), 30);
}

TEST_F(EvaluationTest, AnInterruptedRunGoesOnWhereItWas) {
  int calls = 0;
  const Status stopped = run("r.jsonl", false, [&](const EvaluationProgress&) { return ++calls <= 5; });
  EXPECT_EQ(stopped.error().kind, ErrorKind::kCancelled);
  EXPECT_THAT(records("r.jsonl"), SizeIs(5));
  {
    std::ofstream torn(folder_ / "r.jsonl", std::ios::app);
    torn << R"({"group":"animals","id":"1","cont)";
  }
  EXPECT_THAT(run("r.jsonl").error().message, HasSubstr("--resume"));
  ASSERT_TRUE(run("r.jsonl", true).ok());
  EXPECT_THAT(records("r.jsonl"), SizeIs(14));
  ASSERT_TRUE(run("whole.jsonl").ok());
  const Summary a = summarise(records("r.jsonl"), "full", 1);
  const Summary b = summarise(records("whole.jsonl"), "full", 1);
  for (const char* metric : {"em", "f1", "nll"}) {
    EXPECT_EQ(a.groups[0].contexts[2].metrics.at(metric).mean,
              b.groups[0].contexts[2].metrics.at(metric).mean);
  }
}

TEST_F(EvaluationTest, OtherSettingsAreRefusedByName) {
  options_.contexts = "full";
  ASSERT_TRUE(run("r.jsonl").ok());
  options_.contexts = "closed,full";  // may differ: contexts can be added later
  options_.limit = 1;
  EXPECT_TRUE(run("r.jsonl", true).ok());
  options_.passages = 3;
  options_.seed = 4;
  EXPECT_THAT(run("r.jsonl", true).error().message, HasSubstr("passages, seed"));
}

TEST_F(EvaluationTest, ContextsThatATaskDoesNotHaveAreRefused) {
  task_.contexts = *parse_contexts("full,reuse");
  options_.contexts = "latent";
  EXPECT_THAT(plan().error().message, HasSubstr("it has full, reuse"));
}

TEST_F(EvaluationTest, OnlyWhatIsReadMustBeInTheMemory) {
  options_.contexts = "full,reuse";
  options_.limit = 1;
  EXPECT_THAT(plan()->needed_documents(), SizeIs(2));
  options_.contexts = "bm25";
  EXPECT_THAT(plan()->needed_documents(), SizeIs(4));
}

TEST_F(EvaluationTest, RecordsTellWhereEverythingStood) {
  const Json json = to_json(ask(1, Context::kRouted));
  EXPECT_EQ(json["context"], "routed");
  EXPECT_EQ(json["reply"], "Rome.\nmore");
  EXPECT_EQ(json["prediction"], "Rome");
  EXPECT_EQ(json["ranked"][1]["gold"], Json::array({0}));
  EXPECT_EQ(json["timing"]["ttft_ms"], 5.0);
  EXPECT_EQ(json["policy"], "reuse");
  const auto back = parse_record(json);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->scores.at("em"), 1);
}

// Two conversations; what is asked of the first stands in its messages 0 and 2.
class ReplayTest : public EvaluationTest {
 protected:
  void SetUp() override {
    EvaluationTest::SetUp();
    data_ = {};
    const auto said = [&](const char* text) {
      data_.documents.push_back({"", text, ""});
      return SpokenMessage{static_cast<int>(data_.documents.size()) - 1, "user", "", ""};
    };
    const SpokenMessage zebra = said("My zebra eats thistles."), rain = said("It rains again."),
                        moved = said("The zebra has moved to Bern."), other = said("My zebra eats grass.");
    data_.conversations = {{"one", {zebra, rain, moved}}, {"two", {other, rain}}};
    Question eats;
    eats.id = "one/1";
    eats.group = "facts";
    eats.text = "What does the zebra eat, thistles?";
    eats.gold = {{{{0}}}};
    eats.conversation = 0;
    Question grass = eats;
    grass.id = "two/1";
    grass.gold = {{{{3}}}};
    grass.conversation = 1;
    Question both = eats;
    both.id = "one/2";
    both.group = "several";
    both.gold = {{{{0}}}, {{{2}}}};
    data_.questions = {grass, eats, both};
    task_ = *parse_task(R"toml(
name = "talks"
kind = "replay"
title = "Talks"
instruction = "Listen."
metrics = []
contexts = ["messages", "routed"]
baseline = "messages"
unit = "passage"
recall_at = [1, 2]
[[data]]
reader = "beam"
path = "talks"
)toml",
                        "talks.toml");
  }
};

TEST_F(ReplayTest, MessagesOfTheOwnConversationAreRanked) {
  const Record words = ask(2, Context::kMessages);
  EXPECT_EQ(words.error, "");
  ASSERT_THAT(words.ranked, SizeIs(2));
  EXPECT_EQ(words.ranked[0].passage.span.document, 0);
  EXPECT_EQ(words.ranked[1].passage.span.document, 2);
  EXPECT_EQ(words.scores.at("recall@1"), 0.5);
  EXPECT_EQ(words.scores.at("recall@2"), 1);
  // The stand-in finds what was said last first: messages 2 and 1.
  const Record found = ask(2, Context::kRouted);
  EXPECT_EQ(found.scores.at("recall@1"), 0.5);
  EXPECT_EQ(found.scores.at("recall@2"), 0.5);
  EXPECT_FALSE(found.answered);
  EXPECT_EQ(ask(0, Context::kMessages).scores.at("recall@1"), 1);
}

TEST_F(ReplayTest, OneConversationAfterAnotherAndTheLimitTakesTheFirst) {
  const auto all = plan();
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_THAT(all->questions(), ElementsAre(1, 2, 0));
  EXPECT_EQ(all->baseline(), "messages");
  options_.limit = 2;
  options_.baseline = "none";
  EXPECT_THAT(plan()->questions(), ElementsAre(1, 2));
  EXPECT_EQ(plan()->baseline(), "");
  data_.questions[1].conversation = 7;
  ASSERT_FALSE(plan().ok());
  EXPECT_THAT(plan().error().message, HasSubstr("needs data whose questions are asked about conversations"));
}

TEST_F(ReplayTest, DifferencesAreTakenFromTheMessages) {
  ASSERT_TRUE(run("talks.jsonl").ok());
  const ResultLines lines = *read_results(folder_ / "talks.jsonl");
  EXPECT_EQ(lines.settings.at("baseline"), "messages");
  EXPECT_EQ(lines.settings.at("live_budget_tokens"), 2048);
  EXPECT_EQ(lines.settings.at("recall_only"), true);
  const Summary summary = summarise(lines.records, plan_->baseline(), 0);
  ASSERT_THAT(summary.groups, SizeIs(3));
  EXPECT_EQ(summary.groups.back().contexts[0].context, "messages");
  EXPECT_TRUE(summary.groups.back().contexts[1].differences.contains("recall@2"));
}

}  // namespace
}  // namespace rhapsode::eval
