// Evidence rankers: their files, and ranking by them.
#include "recall/evidence.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/evidence_file.h"
#include "support/temporary_folder.h"

namespace rhapsode::recall {
namespace {

class EvidenceFile : public test::TemporaryFolder {
 protected:
  Result<EvidenceModel> load(const test::GgufWriter& writer) {
    writer.save(folder_ / "evidence.gguf");
    return EvidenceModel::load(folder_ / "evidence.gguf");
  }
  void expect_refused(const test::GgufWriter& writer, ErrorKind kind, const std::string& word) {
    const auto model = load(writer);
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.error().kind, kind) << model.error().message;
    EXPECT_NE(model.error().message.find(word), std::string::npos) << model.error().message;
  }
};

TEST_F(EvidenceFile, WeightsAreReadAsTheyWereWritten) {
  EvidenceModel model;
  for (size_t i = 0; i < kEvidenceFeatureCount; ++i) {
    model.found[i] = 0.5f * static_cast<float>(i);
    model.judged[i] = -1.0f - static_cast<float>(i);
  }
  const auto read = load(test::evidence_file(model));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->found, model.found);
  EXPECT_EQ(read->judged, model.judged);
}

TEST_F(EvidenceFile, FilesOfOtherKindsAndDamagedOnesAreRefused) {
  test::GgufWriter other = test::evidence_file({});
  other.remove("general.architecture");
  other.string("general.architecture", "qwen2");
  expect_refused(other, ErrorKind::kUnsupported, "no evidence ranker");

  test::GgufWriter features = test::evidence_file({});
  features.remove("evidence.features");
  features.strings("evidence.features", {"latent", "keywords"});
  expect_refused(features, ErrorKind::kUnsupported, "other features");

  test::GgufWriter lacking = test::evidence_file({});
  lacking.tensors.pop_back();
  expect_refused(lacking, ErrorKind::kCorrupt, "evidence.judged");

  test::GgufWriter narrow = test::evidence_file({});
  narrow.tensors[0].shape = {3};
  narrow.tensors[0].bytes = 12;
  narrow.tensors[0].data.resize(12);
  expect_refused(narrow, ErrorKind::kCorrupt, "evidence.found");

  EvidenceModel wild;
  wild.found[4] = std::numeric_limits<float>::quiet_NaN();
  expect_refused(test::evidence_file(wild), ErrorKind::kCorrupt, "finite");
}

TEST(Evidence, RanksByTheWeightsAndTiesByTheLowerId) {
  std::vector<EvidenceCandidate> candidates(4);
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].ranked.passage = static_cast<int64_t>(9 - i);
  candidates[0].row[feature("coverage")] = 0.25f;
  candidates[2].row[feature("coverage")] = 0.75f;
  rank_evidence(test::weighs_only(feature("coverage"), 2).found, candidates);
  std::vector<int64_t> order;
  for (const EvidenceCandidate& one : candidates) order.push_back(one.ranked.passage);
  EXPECT_EQ(order, (std::vector<int64_t>{7, 9, 6, 8}));
  EXPECT_EQ(candidates[0].ranked.score, 1.5);
}

TEST(Evidence, JudgementsAreComparedAmongThoseThatHaveOne) {
  std::vector<EvidenceCandidate> candidates(3);
  candidates[0].ranked.judged = 1.0;
  candidates[2].ranked.judged = 3.0;
  add_judgement(candidates);
  EXPECT_EQ(candidates[0].row[feature("was_judged")], 1);
  EXPECT_EQ(candidates[1].row[feature("was_judged")], 0);
  EXPECT_EQ(candidates[1].row[feature("judged")], 0);
  EXPECT_FLOAT_EQ(candidates[0].row[feature("judged")], -candidates[2].row[feature("judged")]);
  EXPECT_GT(candidates[2].row[feature("judged")], 0);
}

}  // namespace
}  // namespace rhapsode::recall
