// Finding on a GPU against plain loops. Skipped where there is none.
#include "kernels/cuda/code_search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cuda/cuda_backend.h"

namespace rhapsode::kernels::cuda {
namespace {

#define RH_REQUIRE_GPU() \
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device()

struct Passage {
  int64_t id = 0;
  std::vector<uint64_t> words;  // [chunks][words of a code]
  int32_t chunks = 0;
};

struct Question {
  int tokens = 0;
  std::vector<int8_t> levels;
  std::vector<double> factors;
  CodeQuestion view() const { return {tokens, levels, factors}; }
};

struct Corpus {
  Corpus(int dimensions_in, int count, unsigned seed) : dimensions(dimensions_in), random(seed) {
    ids.resize(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), int64_t{5});
    std::shuffle(ids.begin(), ids.end(), random);  // slots are not in the order of ids
    for (const int64_t id : ids) {
      Passage passage{id, {}, static_cast<int32_t>(1 + random() % 80)};
      if (random() % 4 == 0) passage.chunks = static_cast<int32_t>(1 + random() % 3);
      passage.words.resize(static_cast<size_t>(passage.chunks) * words());
      // Bits behind the last dimension are rubbish on purpose.
      for (uint64_t& word : passage.words) word = uint64_t{random()} << 32 | random();
      passages.push_back(std::move(passage));
    }
  }

  size_t words() const { return static_cast<size_t>(dimensions + 63) / 64; }

  Question question(int tokens) {
    Question q;
    q.tokens = tokens;
    for (int t = 0; t < tokens; ++t) {
      for (int i = 0; i < dimensions; ++i) {
        q.levels.push_back(static_cast<int8_t>(2 * static_cast<int>(random() % 16) - 15));
      }
      q.factors.push_back(static_cast<double>(random() % 1000) / 7919.0);
    }
    return q;
  }

  std::vector<CodeRun> runs(size_t begin, size_t end) const {
    std::vector<CodeRun> runs;
    for (size_t i = begin; i < end; ++i) {
      const Passage& passage = passages[i];
      runs.push_back({passage.id, reinterpret_cast<const std::byte*>(passage.words.data()), passage.chunks});
    }
    return runs;
  }

  float score(const Question& q, const Passage& passage) const {
    double sum = 0;
    for (int t = 0; t < q.tokens; ++t) {
      int best = std::numeric_limits<int>::lowest();
      for (int c = 0; c < passage.chunks; ++c) {
        int dot = 0;
        for (int i = 0; i < dimensions; ++i) {
          const uint64_t word = passage.words[static_cast<size_t>(c) * words() + static_cast<size_t>(i / 64)];
          const int level = q.levels[static_cast<size_t>(t * dimensions + i)];
          dot += (word >> (i % 64) & 1) != 0 ? level : -level;
        }
        best = std::max(best, dot);
      }
      sum += q.factors[static_cast<size_t>(t)] * best;
    }
    return static_cast<float>(sum / std::sqrt(static_cast<double>(dimensions)));
  }

  std::vector<CodeHit> expected(const Question& q, std::span<const uint64_t> visible, size_t count) const {
    std::vector<CodeHit> hits;
    for (size_t slot = 0; slot < passages.size(); ++slot) {
      if ((visible[slot / 64] >> (slot % 64) & 1) == 0) continue;
      hits.push_back({passages[slot].id, score(q, passages[slot])});
    }
    std::sort(hits.begin(), hits.end(), [](const CodeHit& a, const CodeHit& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    });
    hits.resize(std::min(hits.size(), count));
    return hits;
  }

  int dimensions = 0;
  std::mt19937 random;
  std::vector<int64_t> ids;
  std::vector<Passage> passages;
};

std::vector<uint64_t> all_visible(size_t slots) {
  return std::vector<uint64_t>((slots + 63) / 64, ~uint64_t{0});
}

void expect_equal(const std::vector<CodeHit>& actual, const std::vector<CodeHit>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].id, expected[i].id) << "place " << i;
    ASSERT_EQ(actual[i].score, expected[i].score) << "place " << i;
  }
}

std::unique_ptr<CodeSearch> made(int dimensions) {
  auto search = make_code_search(dimensions);
  EXPECT_TRUE(search.ok()) << search.error().message;
  return search.ok() ? std::move(*search) : nullptr;
}

TEST(DeviceCodeSearch, FindsWhatPlainLoopsFindBitForBit) {
  RH_REQUIRE_GPU();
  for (const int dimensions : {1, 64, 100, 320, 576, 896, 1100, 1536, 2200}) {
    SCOPED_TRACE(dimensions);
    Corpus corpus(dimensions, 120, static_cast<unsigned>(dimensions));
    const auto search = made(dimensions);
    ASSERT_TRUE(search);
    // In several parts, so that passages begin inside a group.
    for (size_t begin = 0; begin < corpus.passages.size();) {
      const size_t end = std::min(corpus.passages.size(), begin + 1 + corpus.random() % 50);
      ASSERT_TRUE(search->add(corpus.runs(begin, end)).ok());
      begin = end;
    }
    ASSERT_EQ(search->slots(), corpus.passages.size());
    std::vector<uint64_t> visible = all_visible(search->slots());
    for (const int tokens : {1, 12, 17, 70}) {
      SCOPED_TRACE(tokens);
      const Question question = corpus.question(tokens);
      const CodeQuestion view = question.view();
      const std::vector<CodeHit> all = corpus.expected(question, visible, corpus.passages.size());
      for (const size_t count : {size_t{1}, size_t{40}, size_t{1000}}) {
        const auto found = search->best({&view, 1}, visible, static_cast<int>(count));
        ASSERT_TRUE(found.ok()) << found.error().message;
        expect_equal((*found)[0],
                     std::vector<CodeHit>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(
                                                                         std::min(count, all.size()))));
        if (HasFatalFailure()) return;
      }
      visible[corpus.random() % visible.size()] &= ~(uint64_t{1} << (corpus.random() % 64));
    }
  }
}

TEST(DeviceCodeSearch, AnswersQuestionsTogetherAsOneByOne) {
  RH_REQUIRE_GPU();
  Corpus corpus(896, 100, 1);
  const auto search = made(896);
  ASSERT_TRUE(search);
  ASSERT_TRUE(search->add(corpus.runs(0, corpus.passages.size())).ok());
  const std::vector<uint64_t> visible = all_visible(search->slots());
  std::vector<Question> questions;
  std::vector<CodeQuestion> views;
  for (const int tokens : {3, 16, 31, 12, 70}) questions.push_back(corpus.question(tokens));
  for (const Question& question : questions) views.push_back(question.view());
  const auto found = search->best(views, visible, 10);
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (size_t q = 0; q < questions.size(); ++q) {
    SCOPED_TRACE(q);
    expect_equal((*found)[q], corpus.expected(questions[q], visible, 10));
  }
}

TEST(DeviceCodeSearch, EqualScoresGoToTheLowerIdHoweverMany) {
  RH_REQUIRE_GPU();
  Corpus corpus(128, 3000, 2);
  for (Passage& passage : corpus.passages) {
    passage.chunks = 1;
    passage.words.assign(corpus.words(), 0x5555555555555555u);
  }
  const auto search = made(128);
  ASSERT_TRUE(search);
  ASSERT_TRUE(search->add(corpus.runs(0, corpus.passages.size())).ok());
  const Question question = corpus.question(5);
  const CodeQuestion view = question.view();
  const auto found = search->best({&view, 1}, all_visible(search->slots()), 20);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ((*found)[0].size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ((*found)[0][i].id, static_cast<int64_t>(5 + i));
}

TEST(DeviceCodeSearch, NothingVisibleIsNothingFound) {
  RH_REQUIRE_GPU();
  Corpus corpus(64, 100, 3);
  const auto search = made(64);
  ASSERT_TRUE(search);
  const Question question = corpus.question(2);
  const CodeQuestion view = question.view();
  EXPECT_TRUE((*search->best({&view, 1}, {}, 5))[0].empty());
  ASSERT_TRUE(search->add(corpus.runs(0, corpus.passages.size())).ok());
  const std::vector<uint64_t> none(2, 0);
  EXPECT_TRUE((*search->best({&view, 1}, none, 5))[0].empty());
}

TEST(DeviceCodeSearch, RefusesWhatDoesNotFitTogether) {
  RH_REQUIRE_GPU();
  Corpus corpus(64, 10, 4);
  const auto search = made(64);
  ASSERT_TRUE(search);
  ASSERT_TRUE(search->add(corpus.runs(0, 10)).ok());
  Question question = corpus.question(2);
  const std::vector<uint64_t> visible = all_visible(10);
  const auto kind = [&](const Question& q, std::span<const uint64_t> seen, int count) {
    const CodeQuestion view = q.view();
    const auto found = search->best({&view, 1}, seen, count);
    return found.ok() ? ErrorKind::kInternal : found.error().kind;
  };
  EXPECT_EQ(kind(question, {}, 5), ErrorKind::kInvalidArgument);
  EXPECT_EQ(kind(question, visible, 0), ErrorKind::kInvalidArgument);
  question.factors[1] = NAN;
  EXPECT_EQ(kind(question, visible, 5), ErrorKind::kInvalidArgument);
  question.factors.pop_back();
  EXPECT_EQ(kind(question, visible, 5), ErrorKind::kInvalidArgument);
  CodeRun damaged{1, nullptr, 3};
  EXPECT_FALSE(search->add({&damaged, 1}).ok());
  damaged = corpus.runs(0, 1)[0];
  damaged.chunks = 0;
  EXPECT_FALSE(search->add({&damaged, 1}).ok());
  EXPECT_EQ(search->slots(), 10u);
  EXPECT_FALSE(make_code_search(0).ok());
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
