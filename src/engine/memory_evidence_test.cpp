// Ranking by evidence in a memory: what is known of candidates, what filters keep from it, and when it
// decides.
#include <gmock/gmock.h>

#include "engine/memory_fixture.h"
#include "recall/evidence_model.h"
#include "support/evidence_file.h"

namespace rhapsode {
namespace {

using recall::feature;
using testing::Contains;
using testing::Not;

class MemoryEvidence : public MemoryTest {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    if (!engine_) return;
    write("bridge.md", "# Alder Bridge\n\nIt was drawn by Edda Morvane and opened in spring.\n");
    write("edda.md", "# Edda Morvane\n\nShe kept bees and was born in Skellig Harbour.\n");
    write("harbour.md", "# Skellig Harbour\n\nNine hundred people live there.\n");
    write("quince.md", "# Quince\n\nA fruit that is boiled with sugar in spring.\n");
  }
  std::unique_ptr<Memory> open_with(const recall::EvidenceModel& model) {
    test::evidence_file(model).save(folder_ / "ranker.gguf");
    MemoryOptions with = options();
    with.ranker = folder_ / "ranker.gguf";
    auto memory = Memory::open(*engine_, with);
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    if (!memory.ok()) return nullptr;
    add(**memory);
    return std::move(*memory);
  }
  static SearchOptions by_evidence() {
    SearchOptions options;
    options.limit = 10;
    options.rank = RankBy::kEvidence;
    return options;
  }
  static std::vector<FoundPassage> search(Memory& memory, const std::string& question,
                                          const SearchOptions& options) {
    auto found = memory.search(question, options);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? std::move(*found) : std::vector<FoundPassage>{};
  }
  static const FoundPassage& named(const std::vector<FoundPassage>& found, const std::string& name) {
    static const FoundPassage kNone;
    for (const FoundPassage& one : found) {
      if (fs::path(one.passage.source).filename() == name) return one;
    }
    ADD_FAILURE() << name << " was not found";
    return kNone;
  }
  static float value(const FoundPassage& found, size_t feature) {
    EXPECT_EQ(found.evidence.size(), recall::kEvidenceFeatureCount);
    return found.evidence.size() == recall::kEvidenceFeatureCount ? found.evidence[feature] : -99;
  }
};

constexpr char kQuestion[] = "Where was the person born who drew the Alder Bridge?";

TEST_F(MemoryEvidence, KnowsWhoIsNamedInTheQuestionAndByWhom) {
  const auto memory = open_with(test::weighs_only(feature("named_by_titled")));
  const auto found = search(*memory, kQuestion, by_evidence());
  ASSERT_EQ(found.size(), 4u);
  // The only one that what the question names speaks of.
  EXPECT_EQ(fs::path(found[0].passage.source).filename(), "edda.md");
  EXPECT_EQ(value(named(found, "bridge.md"), feature("titled")), 1);
  EXPECT_FLOAT_EQ(value(named(found, "bridge.md"), feature("title_words")), 2.0f / 3);
  EXPECT_EQ(value(named(found, "edda.md"), feature("titled")), 0);
  EXPECT_EQ(value(named(found, "edda.md"), feature("named_by_titled")), 1);
  EXPECT_EQ(value(named(found, "harbour.md"), feature("named_by_titled")), 0);
  EXPECT_GT(value(named(found, "harbour.md"), feature("title_walk")),
            value(named(found, "quince.md"), feature("title_walk")));
  EXPECT_GT(value(named(found, "bridge.md"), feature("coverage")),
            value(named(found, "harbour.md"), feature("coverage")));
  EXPECT_GT(value(named(found, "bridge.md"), feature("title_coverage")), 0.9f);
  EXPECT_EQ(value(named(found, "quince.md"), feature("link_to_best")), 0);
  // The same whenever it is asked.
  const auto again = search(*memory, kQuestion, by_evidence());
  ASSERT_EQ(again.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(again[i].evidence, found[i].evidence);
}

TEST_F(MemoryEvidence, WhatIsJudgedIsRankedByTheWeightsForIt) {
  recall::EvidenceModel model;
  model.found[feature("titled")] = 1;
  model.judged[feature("judged")] = 1;
  const auto memory = open_with(model);
  SearchOptions options = by_evidence();
  EXPECT_EQ(fs::path(search(*memory, kQuestion, options)[0].passage.source).filename(), "bridge.md");
  options.judge = {4, 100000};
  const auto found = search(*memory, kQuestion, options);
  ASSERT_EQ(found.size(), 4u);
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].judged.has_value());
    EXPECT_LE(*found[i].judged, *found[i == 0 ? 0 : i - 1].judged);
  }
}

TEST_F(MemoryEvidence, NothingThatAFilterHidesIsACandidateOrLeadsToOne) {
  const auto memory = open_with(test::weighs_only(feature("title_walk")));
  SearchOptions options = by_evidence();
  for (const char* name : {"bridge.md", "harbour.md", "quince.md"}) {
    options.filter.sources.push_back((folder_ / "docs" / name).string());
  }
  const auto found = search(*memory, kQuestion, options);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(value(named(found, "harbour.md"), feature("title_walk")),
            value(named(found, "quince.md"), feature("title_walk")));
  ForgetOptions forget;
  forget.sources = {(folder_ / "docs/edda.md").string()};
  ASSERT_TRUE(memory->forget(forget).ok());
  EXPECT_EQ(search(*memory, kQuestion, by_evidence()).size(), 3u);
}

TEST_F(MemoryEvidence, DecidesWhereNothingElseIsAskedFor) {
  const auto memory = open_with(test::weighs_only(feature("named_by_titled")));
  SearchOptions options;
  options.limit = 4;
  EXPECT_FALSE(search(*memory, kQuestion, options)[0].evidence.empty());
  options.latent = false;
  EXPECT_TRUE(search(*memory, kQuestion, options)[0].evidence.empty());
  options = {};
  options.links.on = false;
  EXPECT_TRUE(search(*memory, kQuestion, options)[0].evidence.empty());
  options.rank = RankBy::kEvidence;
  const auto refused = memory->search(kQuestion, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
  options = {};
  options.rank = RankBy::kFused;
  EXPECT_TRUE(search(*memory, kQuestion, options)[0].evidence.empty());
}

TEST_F(MemoryEvidence, AnAnswerReadsWhatEvidenceRanksFirst) {
  const auto memory = open_with(test::weighs_only(feature("named_by_titled")));
  AskOptions options;
  options.question = kQuestion;
  options.most_passages = 1;
  options.max_tokens = 1;
  options.abstain = options.cite = false;
  const auto answer = memory->ask(options);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_EQ(answer->passages.size(), 1u);
  EXPECT_EQ(fs::path(answer->passages[0].passage.source).filename(), "edda.md");
}

TEST_F(MemoryEvidence, ARankerThatIsNoneIsRefused) {
  MemoryOptions with = options();
  with.ranker = folder_ / "nowhere.gguf";
  const auto memory = Memory::open(*engine_, with);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().kind, ErrorKind::kNotFound);
}

}  // namespace
}  // namespace rhapsode
