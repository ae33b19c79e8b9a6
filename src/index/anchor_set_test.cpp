#include "index/anchor_set.h"

#include <gtest/gtest.h>

#include <cmath>

#include "index/code_scan_kernels.h"
#include "index/index_test_support.h"

namespace rhapsode::index {
namespace {

std::vector<float> states(TestTopics& topics, int tokens) {
  return topics.question(tokens).vectors;
}

TEST(AnchorSet, FindsTheDirectionsOfItsPoints) {
  TestTopics topics(40);
  const std::shared_ptr<const AnchorSet> anchors = topics.anchors(64);
  EXPECT_GT(anchors->count(), 40);
  const auto nearest = anchors->nearest(states(topics, 100), 3);
  int close = 0;
  for (const auto& hits : nearest) {
    ASSERT_FALSE(hits.empty());
    close += hits[0].dot > 0.6f ? 1 : 0;  // a point's own dot product with its topic is 0.8
    for (size_t i = 1; i < hits.size(); ++i) EXPECT_GE(hits[i - 1].dot, hits[i].dot);
  }
  EXPECT_GT(close, 80);  // k-means leaves some topics without an anchor of their own
}

TEST(AnchorSet, DotProductsAreThoseOfTheRoundedAnchors) {
  TestTopics topics(10);
  const std::shared_ptr<const AnchorSet> anchors = topics.anchors(16);
  const std::vector<float> token = states(topics, 1);
  const auto nearest = anchors->nearest(token, anchors->count());
  ASSERT_GT(nearest[0].size(), 3u);
  for (const AnchorHit& hit : nearest[0]) {
    const FourBitQuestion& block = anchors->blocks()[0];
    double dot = 0.0;
    for (size_t i = 0; i < token.size(); ++i) {
      dot += token[i] * block.levels[static_cast<size_t>(hit.anchor) * token.size() + i];
    }
    EXPECT_NEAR(dot * block.scales[static_cast<size_t>(hit.anchor)], hit.dot, 1e-4);
  }
}

TEST(AnchorSet, TheSamePointsGiveTheSameAnchorsOnEveryMachineAndNumberOfThreads) {
  TestTopics topics(20);
  const std::vector<float> points = states(topics, 400);
  AnchorTraining training;
  training.count = 600;  // more than a quarter of the points: cut down
  const auto first = AnchorSet::train(kTestDimensions, points, training);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->count(), 100);
  training.threads = 3;
  EXPECT_EQ(AnchorSet::train(kTestDimensions, points, training)->id(), first->id());
  if (!force_scan_target("SSE4")) return;
  EXPECT_EQ(AnchorSet::train(kTestDimensions, points, training)->id(), first->id());
  force_scan_target("");
}

TEST(AnchorSet, SurvivesEncodingAndRefusesDamage) {
  TestTopics topics(10);
  const std::shared_ptr<const AnchorSet> anchors = topics.anchors(20);
  const std::vector<std::byte> bytes = anchors->encode();
  const auto back = AnchorSet::decode(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->id(), anchors->id());
  EXPECT_EQ(back->encode(), bytes);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{16}, bytes.size() - 1}) {
    EXPECT_EQ(AnchorSet::decode(std::span(bytes).first(size)).error().kind, ErrorKind::kCorrupt);
  }
  for (const size_t at : {size_t{0}, size_t{8}, size_t{11}, size_t{13}, size_t{19}}) {
    std::vector<std::byte> changed = bytes;
    changed[at] = std::byte{0xff};
    EXPECT_FALSE(AnchorSet::decode(changed).ok()) << at;
  }
}

TEST(AnchorSet, RefusesWhatItCannotBeTrainedOn) {
  EXPECT_EQ(AnchorSet::train(64, std::vector<float>(64 * 15, 1.0f), {}).error().kind,
            ErrorKind::kInvalidArgument);
  EXPECT_FALSE(AnchorSet::train(0, std::vector<float>(64, 1.0f), {}).ok());
  EXPECT_FALSE(AnchorSet::train(64, std::vector<float>(64 * 32, NAN), {}).ok());
  AnchorTraining none;
  none.count = 0;
  EXPECT_FALSE(AnchorSet::train(64, std::vector<float>(64 * 32, 1.0f), none).ok());
}

}  // namespace
}  // namespace rhapsode::index
