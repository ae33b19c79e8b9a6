#include "index/code_scan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "index/code_scan_kernels.h"

namespace rhapsode::index {
namespace {

std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const char* name : {"AVX3_DL", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "EMU128", "SCALAR"}) {
    if (force_scan_target(name)) names.emplace_back(name);
  }
  force_scan_target("");
  return names;
}

// Passages of random lengths (empty ones too) with random codes, some of which lean towards a question token.
struct World {
  World(int d, int tokens, int passage_count, uint32_t seed) : random(seed) {
    std::normal_distribution<float> normal;
    question.dimensions = d;
    for (int t = 0; t < tokens; ++t) {
      double squares = 0.0;
      const size_t begin = question.vectors.size();
      for (int i = 0; i < d; ++i) {
        question.vectors.push_back(normal(random));
        squares += question.vectors.back() * question.vectors.back();
      }
      for (size_t i = begin; i < question.vectors.size(); ++i) {
        question.vectors[i] /= static_cast<float>(std::sqrt(squares));
      }
      question.weights.push_back(0.1f + std::abs(normal(random)));
    }
    const size_t words = (static_cast<size_t>(d) + 63) / 64;
    std::vector<size_t> begins;
    for (int p = 0; p < passage_count; ++p) {
      begins.push_back(codes.size());
      const int chunks = p % 11 == 3 ? 0 : 1 + static_cast<int>(random() % (p % 7 == 0 ? 150 : 40));
      passages.push_back({1000 - p, nullptr, chunks});
      for (int c = 0; c < chunks; ++c) add_code(words);
    }
    for (size_t p = 0; p < passages.size(); ++p) {
      passages[p].codes = reinterpret_cast<const std::byte*>(codes.data() + begins[p]);
    }
  }

  void add_code(size_t words) {
    const auto d = static_cast<size_t>(question.dimensions);
    const size_t begin = codes.size();
    codes.resize(begin + words);
    const float noise = random() % 4 == 0 ? 1.0f : 10.0f;
    const size_t token = question.weights.empty() ? 0 : random() % question.weights.size();
    std::normal_distribution<float> normal(0.0f, noise / std::sqrt(static_cast<float>(d)));
    for (size_t i = 0; i < d; ++i) {
      const float lean = question.weights.empty() ? 0.0f : question.vectors[token * d + i];
      if (lean + normal(random) > 0.0f) codes[begin + i / 64] |= uint64_t{1} << (i % 64);
    }
  }

  std::mt19937 random;
  QuestionVectors question;
  std::vector<uint64_t> codes;
  std::vector<PassageCodes> passages;
};

void expect_near(const std::vector<float>& scores, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(scores[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(scores[i], expected[i], tolerance * (1.0f + std::abs(expected[i]))) << i;
    }
  }
}

// The same question with its vectors rounded to what the 4-bit form scans with.
QuestionVectors rounded(const QuestionVectors& question) {
  const FourBitQuestion four_bits(question);
  QuestionVectors result = question;
  for (size_t i = 0; i < result.vectors.size(); ++i) {
    const float scale = four_bits.scales[i / static_cast<size_t>(question.dimensions)];
    result.vectors[i] = scale * static_cast<float>(four_bits.levels[i]);
  }
  return result;
}

// The 4-bit scores by plain integer arithmetic.
std::vector<float> integer_scores(const World& world) {
  const FourBitQuestion question(world.question);
  const auto d = static_cast<size_t>(question.dimensions);
  std::vector<float> scores;
  for (const PassageCodes& passage : world.passages) {
    double sum = 0.0;
    for (size_t t = 0; passage.chunks > 0 && t < world.question.weights.size(); ++t) {
      int best = std::numeric_limits<int>::lowest();
      for (int c = 0; c < passage.chunks; ++c) {
        const std::byte* code = passage.codes + static_cast<size_t>(c) * ((d + 63) / 64 * 8);
        int dot = 0;
        for (size_t i = 0; i < d; ++i) {
          const bool positive = (code[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
          dot += positive ? question.levels[t * d + i] : -question.levels[t * d + i];
        }
        best = std::max(best, dot);
      }
      sum += static_cast<double>(world.question.weights[t]) * question.scales[t] * best;
    }
    const auto score = static_cast<float>(sum / std::sqrt(static_cast<double>(d)));
    scores.push_back(passage.chunks > 0 ? score : -std::numeric_limits<float>::infinity());
  }
  return scores;
}

TEST(CodeScan, EveryInstructionSetGivesTheReferencesResult) {
  const std::string best = scan_kernels().target;
  const std::vector<std::string> targets = supported_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.front(), best);
  for (const int d : {1, 63, 64, 65, 96, 320, 576, 896, 1536}) {
    for (const int tokens : {1, 7, 8, 9, 30}) {
      World world(d, tokens, d > 400 ? 6 : 30, static_cast<uint32_t>(d * 100 + tokens));
      const std::vector<float> expected = reference::score_passages(world.question, world.passages);
      const std::vector<float> expected_four_bits = integer_scores(world);
      std::vector<float> first_floats;
      for (const std::string& target : targets) {
        SCOPED_TRACE(fmt::format("{} d={} tokens={}", target, d, tokens));
        ASSERT_TRUE(force_scan_target(target));
        EXPECT_EQ(scan_kernels().target, target);
        const auto floats = score_passages(world.question, world.passages, QuestionForm::kFloat, 1);
        expect_near(floats, expected, 1e-5f);
        if (first_floats.empty()) first_floats = floats;
        EXPECT_EQ(floats, first_floats) << "the same bytes on every instruction set";
        EXPECT_EQ(score_passages(world.question, world.passages, QuestionForm::kFourBits, 1),
                  expected_four_bits);
      }
      expect_near(expected_four_bits, reference::score_passages(rounded(world.question), world.passages),
                  1e-5f);
    }
  }
  EXPECT_FALSE(force_scan_target("no such thing"));
  EXPECT_EQ(scan_kernels().target, best);
}

TEST(CodeScan, SignsScoreAsIfAllValuesOfATokenWereOfOneSize) {
  for (const int d : {64, 100, 896}) {
    World world(d, 9, 60, 5);
    QuestionVectors even = world.question;
    for (size_t t = 0; t < even.weights.size(); ++t) {
      double sum = 0.0;
      for (int i = 0; i < d; ++i)
        sum += std::abs(even.vectors[t * static_cast<size_t>(d) + static_cast<size_t>(i)]);
      for (int i = 0; i < d; ++i) {
        float& value = even.vectors[t * static_cast<size_t>(d) + static_cast<size_t>(i)];
        value = static_cast<float>(value >= 0.0f ? sum / d : -sum / d);
      }
    }
    const std::vector<float> expected = reference::score_passages(even, world.passages);
    std::vector<float> first;
    for (const std::string& target : supported_targets()) {
      ASSERT_TRUE(force_scan_target(target));
      const std::vector<float> scores =
          score_passages(world.question, world.passages, QuestionForm::kSigns, 2);
      expect_near(scores, expected, 1e-4f);
      if (first.empty()) first = scores;
      EXPECT_EQ(scores, first) << "the same bytes on every instruction set";
    }
    force_scan_target("");
  }
}

TEST(CodeScan, BitsBehindTheDimensionsAreIgnored) {
  World world(70, 5, 20, 1);
  const auto clean_floats = score_passages(world.question, world.passages, QuestionForm::kFloat, 1);
  const auto clean = score_passages(world.question, world.passages, QuestionForm::kFourBits, 1);
  for (size_t i = 1; i < world.codes.size(); i += 2) world.codes[i] |= ~uint64_t{0} << 6;
  EXPECT_EQ(score_passages(world.question, world.passages, QuestionForm::kFloat, 1), clean_floats);
  EXPECT_EQ(score_passages(world.question, world.passages, QuestionForm::kFourBits, 1), clean);
}

TEST(CodeScan, ThreadsChangeNothing) {
  World world(128, 6, 1200, 3);
  for (const QuestionForm form : {QuestionForm::kFloat, QuestionForm::kFourBits}) {
    const auto alone = score_passages(world.question, world.passages, form, 1);
    for (const int threads : {0, 2, 3, 8}) {
      EXPECT_EQ(score_passages(world.question, world.passages, form, threads), alone) << threads;
    }
  }
}

TEST(CodeScan, TheBestComeFirstAndTiesByLowerId) {
  World world(64, 4, 60, 5);
  for (int i = 0; i < 5; ++i) {  // five passages with equal codes: equal scores
    world.passages[static_cast<size_t>(10 + i)].codes = world.passages[1].codes;
    world.passages[static_cast<size_t>(10 + i)].chunks = world.passages[1].chunks;
  }
  const auto scores = score_passages(world.question, world.passages, QuestionForm::kFourBits, 1);
  std::vector<ScanHit> expected;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (world.passages[i].chunks > 0) expected.push_back({world.passages[i].id, scores[i]});
  }
  std::stable_sort(expected.begin(), expected.end(),
                   [](const ScanHit& a, const ScanHit& b) { return a.id < b.id; });
  std::stable_sort(expected.begin(), expected.end(),
                   [](const ScanHit& a, const ScanHit& b) { return a.score > b.score; });
  for (const int count : {-1, 0, 1, 7, 20, 1000}) {
    const auto hits = best_passages(world.question, world.passages, QuestionForm::kFourBits, count, 2);
    ASSERT_EQ(hits.size(), std::min(expected.size(), static_cast<size_t>(std::max(count, 0))));
    for (size_t i = 0; i < hits.size(); ++i) {
      EXPECT_EQ(hits[i].id, expected[i].id) << count << " " << i;
      EXPECT_EQ(hits[i].score, expected[i].score);
    }
  }
}

TEST(CodeScan, NothingToScanAndNothingAsked) {
  World world(64, 3, 4, 1);
  for (const QuestionForm form : {QuestionForm::kFloat, QuestionForm::kFourBits}) {
    EXPECT_TRUE(score_passages(world.question, {}, form, 4).empty());
    EXPECT_TRUE(best_passages(world.question, {}, form, 5, 4).empty());
    World silent(64, 0, 5, 1);
    EXPECT_THAT(best_passages(silent.question, silent.passages, form, 9, 1), testing::SizeIs(4));
    World zero(64, 2, 3, 1);
    std::fill(zero.question.vectors.begin(), zero.question.vectors.end(), 0.0f);
    EXPECT_EQ(score_passages(zero.question, zero.passages, form, 1), std::vector<float>(3, 0.0f));
  }
}

// What four bits lose against float at the smallest catalogue model's d; docs/results.md states it.
TEST(CodeScan, FourBitsLoseLittle) {
  World world(576, 20, 400, 9);
  const auto exact = score_passages(world.question, world.passages, QuestionForm::kFloat, 1);
  const auto four_bits = score_passages(world.question, world.passages, QuestionForm::kFourBits, 1);
  double errors = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  int count = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    if (std::isinf(exact[i])) continue;
    errors += std::pow(four_bits[i] - exact[i], 2);
    sum += exact[i];
    squares += exact[i] * exact[i];
    ++count;
  }
  const double spread = std::sqrt(squares / count - std::pow(sum / count, 2));
  const double error = std::sqrt(errors / count) / spread;
  EXPECT_LT(error, 0.05) << "of the spread of the scores";
  EXPECT_GT(error, 1e-4) << "the forms are not the same thing";
  const auto ids = [&](QuestionForm form) {
    std::vector<int64_t> best;
    for (const ScanHit& hit : best_passages(world.question, world.passages, form, 20, 1))
      best.push_back(hit.id);
    std::sort(best.begin(), best.end());
    return best;
  };
  const auto a = ids(QuestionForm::kFloat);
  const auto b = ids(QuestionForm::kFourBits);
  std::vector<int64_t> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  EXPECT_GE(common.size(), 18u);
  RecordProperty("error_percent_of_spread", fmt::format("{:.3f}", error * 100));
  RecordProperty("best_20_in_common", static_cast<int>(common.size()));
}

}  // namespace
}  // namespace rhapsode::index
