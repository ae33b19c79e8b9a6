// Finding against a brute-force oracle, and the cases of section K that are an index's (X2 to X13).
#include "index/passage_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "index/find_monitor.h"
#include "index/index_test_support.h"

namespace rhapsode::index {
namespace {

class PassageIndexTest : public testing::Test {
 protected:
  explicit PassageIndexTest(int anchors = 128) : topics_(100), index_(topics_.anchors(anchors)) {}

  void put(int64_t id) {
    store_.put(id, topics_.codes(1 + static_cast<int>(topics_.random()() % 6)));
    const PassageCodes passage = store_.passage(id);
    ASSERT_TRUE(index_.add(std::span(&passage, 1)).ok());
  }
  void put_range(int64_t begin, int64_t end) {
    std::vector<int64_t> ids;
    for (int64_t id = begin; id < end; ++id) {
      store_.put(id, topics_.codes(1 + static_cast<int>(topics_.random()() % 6)));
      ids.push_back(id);
    }
    ASSERT_TRUE(index_.add(store_.passages(ids)).ok());
  }
  size_t drop(const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) store_.drop(id);
    return index_.remove(ids);
  }
  Found find(const QuestionVectors& question, const Scope& scope, const FindOptions& options) {
    auto found = index_.find(question, scope, store_, options);
    EXPECT_TRUE(found.ok());
    return found.ok() ? *found : Found{};
  }
  // Mean recall of the best ten over some questions.
  double recall(const PassageIndex& index, const FindOptions& options) {
    double sum = 0;
    const int questions = 40;
    if (questions_.empty()) {
      for (int i = 0; i < questions; ++i) questions_.push_back(topics_.question(8));
    }
    for (const QuestionVectors& question : questions_) {
      const auto found = index.find(question, index.scope(), store_, options);
      sum += recall_of(found->hits, store_.best(question, store_.ids(), options.count));
    }
    return sum / questions;
  }

  TestTopics topics_;
  TestStore store_;
  PassageIndex index_;
  std::vector<QuestionVectors> questions_;
};

// Random work of every kind; after each round the index holds what the oracle does, and with candidates for
// all of it finds what the oracle finds, under every filter.
TEST_F(PassageIndexTest, AgreesWithTheOracleThroughRandomWork) {
  std::mt19937_64& random = topics_.random();
  FindOptions options;
  options.count = 10;
  options.candidates = 100'000;
  for (int round = 0; round < 60; ++round) {
    const auto begin = static_cast<int64_t>(random() % 400);
    switch (random() % 5) {
      case 0:
        put_range(begin, begin + 30);
        break;
      case 1:
        put(begin);
        break;
      case 2: {
        std::vector<int64_t> ids;
        for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int64_t>(random() % 500));
        std::set<int64_t> there;
        for (const int64_t id : ids) {
          if (index_.contains(id)) there.insert(id);
        }
        EXPECT_EQ(drop(ids), there.size());
        break;
      }
      case 3:
        ASSERT_TRUE(index_.merge().ok());
        break;
      default:
        ASSERT_TRUE(index_.purge().ok());
        break;
    }
    ASSERT_EQ(index_.size(), store_.ids().size());
    const QuestionVectors question = topics_.question(5);
    ASSERT_TRUE(
        same_hits(find(question, index_.scope(), options).hits, store_.best(question, store_.ids(), 10)));
    std::vector<int64_t> allowed;
    for (const int64_t id : store_.ids()) {
      if (random() % 3 == 0) allowed.push_back(id);
    }
    const Found found = find(question, index_.scope(allowed), options);
    ASSERT_TRUE(same_hits(found.hits, store_.best(question, allowed, 10)));
    ASSERT_EQ(found.scored, allowed.size());
  }
}

TEST_F(PassageIndexTest, FewCandidatesFindNearlyAll) {
  put_range(0, 4000);
  FindOptions options;
  options.count = 10;
  options.candidates = 400;
  const Found found = find(topics_.question(8), index_.scope(), options);
  EXPECT_FALSE(found.exact);
  EXPECT_EQ(found.scored, 400u);
  EXPECT_GT(found.postings, 0u);
  EXPECT_GT(recall(index_, options), 0.95);
  options.candidates = 10;  // the estimate alone is worse: the test above can fail
  EXPECT_LT(recall(index_, options), 0.9);
}

TEST_F(PassageIndexTest, FinalistsAreChosenBySigns) {
  put_range(0, 4000);
  FindOptions options;
  options.count = 10;
  options.candidates = 1000;
  options.finalists = 60;
  EXPECT_EQ(find(topics_.question(8), index_.scope(), options).scored, 60u);
  EXPECT_GT(recall(index_, options), 0.9);
  options.finalists = 1;  // the answer is filled all the same
  EXPECT_EQ(find(topics_.question(8), index_.scope(), options).hits.size(), 10u);
  options.exact = true;
  EXPECT_EQ(recall(index_, options), 1.0);
}

TEST_F(PassageIndexTest, ScoresAreThoseOfTheScan) {
  put_range(0, 2000);
  FindOptions options;
  options.candidates = 300;
  const QuestionVectors question = topics_.question(6);
  const Found found = find(question, index_.scope(), options);
  ASSERT_EQ(found.hits.size(), 40u);
  for (const ScanHit& hit : found.hits) {
    const PassageCodes passage = store_.passage(hit.id);
    EXPECT_EQ(hit.score, score_passages(question, std::span(&passage, 1), QuestionForm::kFourBits, 1)[0]);
  }
}

// The switch: with no more passages to choose from than candidates, all are scored and the answer is exact;
// with one more, lists choose. Passages the index does not know are always scored.
TEST_F(PassageIndexTest, SelectiveFiltersAreExact) {
  put_range(0, 2000);
  for (int64_t id = 5000; id < 5050; ++id) store_.put(id, topics_.codes(3));
  FindOptions options;
  options.count = 10;
  options.candidates = 200;
  std::vector<int64_t> allowed;
  for (int64_t id = 0; id < 2000; id += 10) allowed.push_back(id);
  for (int64_t id = 5000; id < 5050; ++id) allowed.push_back(id);
  const QuestionVectors question = topics_.question(6);
  const Scope selective = index_.scope(allowed);
  EXPECT_EQ(selective.passages(), 250u);
  EXPECT_EQ(selective.unlisted(), 50u);
  const Found exact = find(question, selective, options);
  EXPECT_TRUE(exact.exact);
  EXPECT_TRUE(same_hits(exact.hits, store_.best(question, allowed, 10)));
  allowed.insert(allowed.begin() + 1, 5);
  const Found chosen = find(question, index_.scope(allowed), options);
  EXPECT_FALSE(chosen.exact);
  EXPECT_EQ(chosen.scored, 250u);
  for (const ScanHit& hit : chosen.hits) {
    EXPECT_TRUE(std::binary_search(allowed.begin(), allowed.end(), hit.id));
  }
}

TEST_F(PassageIndexTest, ThreadsAndRepetitionChangeNothing) {
  put_range(0, 3000);
  put_range(2000, 4000);
  FindOptions one;
  one.candidates = 150;
  FindOptions many = one;
  many.threads = 4;
  for (int i = 0; i < 10; ++i) {
    const QuestionVectors question = topics_.question(7);
    EXPECT_TRUE(
        same_hits(find(question, index_.scope(), one).hits, find(question, index_.scope(), many).hits));
  }
}

TEST_F(PassageIndexTest, NothingToFindIsNoError) {
  const QuestionVectors question = topics_.question(3);
  EXPECT_TRUE(find(question, index_.scope(), {}).hits.empty());
  store_.put(7, {});
  const PassageCodes empty = store_.passage(7);
  ASSERT_TRUE(index_.add(std::span(&empty, 1)).ok());
  EXPECT_EQ(index_.size(), 1u);
  EXPECT_TRUE(find(question, index_.scope(), {}).hits.empty());
  QuestionVectors none;
  none.dimensions = kTestDimensions;
  put_range(0, 100);
  FindOptions options;
  options.candidates = 10;
  EXPECT_EQ(find(none, index_.scope(), options).scored, 10u);
}

TEST_F(PassageIndexTest, RefusesImpossibleIds) {
  store_.put(-1, topics_.codes(1));
  const PassageCodes negative = store_.passage(-1);
  EXPECT_EQ(index_.add(std::span(&negative, 1)).error().kind, ErrorKind::kInvalidArgument);
  store_.put(4, topics_.codes(1));
  const std::vector<PassageCodes> twice = {store_.passage(4), store_.passage(4)};
  EXPECT_EQ(index_.add(twice).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(index_.size(), 0u);
}

TEST_F(PassageIndexTest, SmallSegmentsAreJoined) {
  for (int64_t i = 0; i < 100; ++i) {
    put_range(i * 10, i * 10 + 10);
    ASSERT_TRUE(index_.merge().ok());
  }
  EXPECT_LT(index_.state()->segments.size(), 9u);
  EXPECT_EQ(index_.size(), 1000u);
}

TEST_F(PassageIndexTest, AScopeKeepsItsState) {
  put_range(0, 100);
  const Scope before = index_.scope();
  const QuestionVectors question = topics_.question(4);
  FindOptions options;
  options.count = 100;
  const std::vector<ScanHit> hits = find(question, before, options).hits;
  index_.remove(store_.ids());
  EXPECT_TRUE(find(question, index_.scope(), options).hits.empty());
  EXPECT_TRUE(same_hits(find(question, before, options).hits, hits));
}

// Readers see, at every moment, a state the writer has made: here every tenth id lives, or none of them.
TEST_F(PassageIndexTest, ReadersBesideAWriter) {
  put_range(0, 1000);
  std::vector<int64_t> tenth;
  for (int64_t id = 0; id < 1000; id += 10) tenth.push_back(id);
  const std::vector<PassageCodes> passages = store_.passages(tenth);
  const QuestionVectors question = topics_.question(6);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<int> answers{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      FindOptions options;
      options.count = 1000;
      options.candidates = 1000;
      TestStore codes = store_;
      while (!stop) {
        const Scope scope = index_.scope();
        if (scope.passages() != 900 && scope.passages() != 1000) ++wrong;
        const auto found = index_.find(question, scope, codes, options);
        if (!found.ok() || found->hits.size() != scope.passages()) ++wrong;
        ++answers;
      }
    });
  }
  std::thread merger([&] {
    while (!stop) {
      if (!index_.merge().ok() || !index_.purge().ok()) ++wrong;
    }
  });
  for (int round = 0; round < 30 || answers < 30; ++round) {
    if (index_.remove(tenth) != tenth.size()) ++wrong;
    if (!index_.add(passages).ok()) ++wrong;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  merger.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(index_.size(), 1000u);
}

TEST_F(PassageIndexTest, TheMonitorSamplesTheSameQuestionsAndReportsTheirRecall) {
  put_range(0, 3000);
  FindOptions options;
  options.count = 10;
  options.candidates = 60;
  FindMonitor monitor(4);
  FindMonitor again(4);
  double sum = 0;
  int sampled = 0;
  for (int i = 0; i < 60; ++i) {
    const QuestionVectors question = topics_.question(6);
    const Found found = find(question, index_.scope(), options);
    ASSERT_TRUE(monitor.observe(index_, question, index_.scope(), store_, options, found).ok());
    ASSERT_TRUE(again.observe(index_, question, index_.scope(), store_, options, found).ok());
    if (!monitor.samples(question)) continue;
    ++sampled;
    sum += recall_of(found.hits, store_.best(question, store_.ids(), 10));
  }
  const RecallReport report = monitor.report();
  EXPECT_EQ(report.questions, 60);
  EXPECT_EQ(report.sampled, sampled);
  EXPECT_GT(sampled, 4);
  EXPECT_LT(sampled, 30);
  EXPECT_NEAR(report.recall(), sum / sampled, 1e-9);
  EXPECT_LE(report.lowest, report.recall());
  EXPECT_EQ(again.report().recall_sum, report.recall_sum);
  options.candidates = 3000;
  const QuestionVectors question = topics_.question(6);
  ASSERT_TRUE(
      monitor
          .observe(index_, question, index_.scope(), store_, options, find(question, index_.scope(), options))
          .ok());
  EXPECT_EQ(monitor.report().questions, 60);  // that one was exact
}

// --- Section K of the user cases ---

TEST_F(PassageIndexTest, X2_CountsLiveItemsThroughManyCycles) {
  uint64_t bytes = 0;
  for (int cycle = 0; cycle < 20; ++cycle) {
    put_range(0, 500);
    EXPECT_EQ(index_.size(), 500u);
    EXPECT_EQ(drop(store_.ids()), 500u);
    EXPECT_EQ(index_.size(), 0u);
    ASSERT_TRUE(index_.merge().ok());
    for (const IndexSegment& segment : index_.state()->segments) bytes += segment.lists->bytes();
    EXPECT_EQ(bytes, 0u);
  }
}

TEST_F(PassageIndexTest, X4_ScoresCanBeRecomputedAfterRemovals) {
  for (const int64_t id : {0, 1, 2, 7}) put(id);
  drop({0});
  // A question that is the only chunk of passage 2.
  store_.put(2, topics_.codes(1));
  const PassageCodes changed = store_.passage(2);
  ASSERT_EQ(*index_.add(std::span(&changed, 1)), 0u);
  QuestionVectors question;
  question.dimensions = kTestDimensions;
  question.weights = {1.0f};
  const auto* words = reinterpret_cast<const uint64_t*>(changed.codes);
  for (size_t i = 0; i < kTestDimensions; ++i) {
    const bool positive = (words[i / 64] >> (i % 64) & 1) != 0;
    question.vectors.push_back((positive ? 1.0f : -1.0f) / std::sqrt(static_cast<float>(kTestDimensions)));
  }
  for (const size_t candidates : {size_t{1}, size_t{100}}) {
    FindOptions options;
    options.candidates = candidates;
    const std::vector<ScanHit> hits = find(question, index_.scope(), options).hits;
    ASSERT_FALSE(hits.empty());
    EXPECT_EQ(hits[0].id, 2);
    EXPECT_NEAR(hits[0].score, 1.0f, 0.001f);
  }
}

TEST_F(PassageIndexTest, X5_RemovingTwiceUnknownOrRepeatedIdsCounts) {
  put_range(0, 10);
  EXPECT_EQ(index_.remove(std::vector<int64_t>{3}), 1u);
  EXPECT_EQ(index_.remove(std::vector<int64_t>{3}), 0u);
  EXPECT_EQ(index_.remove(std::vector<int64_t>{99, -5}), 0u);
  EXPECT_EQ(index_.remove(std::vector<int64_t>{4, 4, 5, 5, 5, 3}), 2u);
  EXPECT_EQ(index_.remove({}), 0u);
  EXPECT_EQ(index_.size(), 7u);
}

TEST_F(PassageIndexTest, X6_AlwaysFillsTheAnswerFromWhatLives) {
  put_range(0, 5000);
  std::vector<int64_t> most;
  for (int64_t id = 0; id < 5000; ++id) {
    if (id % 100 != 0) most.push_back(id);
  }
  drop(most);
  FindOptions options;
  options.count = 10;
  for (const size_t candidates : {size_t{10}, size_t{4096}}) {
    options.candidates = candidates;
    const std::vector<ScanHit> hits = find(topics_.question(5), index_.scope(), options).hits;
    EXPECT_EQ(hits.size(), 10u);
    for (const ScanHit& hit : hits) EXPECT_EQ(hit.id % 100, 0);
  }
  for (int i = 0; i < 100; ++i) {
    put(100'000);
    drop({i * 100});
  }
  EXPECT_EQ(index_.size(), 1u);
  EXPECT_EQ(find(topics_.question(5), index_.scope(), options).hits.size(), 1u);
}

TEST_F(PassageIndexTest, X13_ReplacingHalfBesideQuestionsKeepsRecall) {
  put_range(0, 6000);
  FindOptions options;
  options.count = 10;
  options.candidates = 300;
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  const QuestionVectors question = topics_.question(8);
  std::thread reader([&, codes = store_]() mutable {
    while (!stop) {
      const auto found = index_.find(question, index_.scope(), codes, options);
      if (!found.ok() || found->hits.size() != 10) ++wrong;
    }
  });
  for (int round = 0; round < 10; ++round) {
    std::vector<int64_t> replaced;
    for (int64_t id = round; id < 6000; id += 20) replaced.push_back(id);
    for (const int64_t id : replaced) store_.put(id, topics_.codes(4));
    index_.remove(replaced);
    ASSERT_TRUE(index_.add(store_.passages(replaced)).ok());
    ASSERT_TRUE(index_.merge().ok());
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  PassageIndex fresh(index_.state()->anchors);
  ASSERT_TRUE(fresh.add(store_.passages(store_.ids())).ok());
  EXPECT_EQ(fresh.size(), index_.size());
  const double of_fresh = recall(fresh, options);
  EXPECT_GT(of_fresh, 0.9);
  EXPECT_NEAR(recall(index_, options), of_fresh, 0.02);
}

}  // namespace
}  // namespace rhapsode::index
