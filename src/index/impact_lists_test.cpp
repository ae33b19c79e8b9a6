#include "index/impact_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "index/candidate_choice.h"
#include "index/index_test_support.h"

namespace rhapsode::index {
namespace {

std::vector<size_t> all_anchors(const ImpactLists& lists) {
  std::vector<size_t> anchors(lists.anchors());
  std::iota(anchors.begin(), anchors.end(), size_t{0});
  return anchors;
}

bool equal(const ImpactLists& a, const ImpactLists& b) {
  if (!std::equal(a.ids().begin(), a.ids().end(), b.ids().begin(), b.ids().end())) return false;
  const FetchedLists of_a = *a.fetch(all_anchors(a));
  const FetchedLists of_b = *b.fetch(all_anchors(b));
  for (size_t i = 0; i < of_a.lists.size(); ++i) {
    const Postings& x = of_a.lists[i];
    const Postings& y = of_b.lists[i];
    if (!std::equal(x.passages.begin(), x.passages.end(), y.passages.begin(), y.passages.end())) return false;
    if (!std::equal(x.impacts.begin(), x.impacts.end(), y.impacts.begin(), y.impacts.end())) return false;
  }
  return true;
}

class ImpactListsTest : public testing::Test {
 protected:
  ImpactListsTest() : topics_(60), anchors_(topics_.anchors(90)) {
    for (int64_t id = 0; id < 300; ++id) {
      store_.put(id * 3, topics_.codes(static_cast<int>(topics_.random()() % 150) * (id % 7 == 0 ? 0 : 1)));
    }
  }
  ImpactLists build(std::span<const int64_t> ids, ListOptions options = {}) {
    return *ImpactLists::build(*anchors_, store_.passages(ids), options);
  }
  TestTopics topics_;
  std::shared_ptr<const AnchorSet> anchors_;
  TestStore store_;
};

// The definition, in floating point: the anchors of each passage with the largest dot products.
TEST_F(ImpactListsTest, ListsTheAnchorsThatComeClosest) {
  const std::vector<int64_t> ids = store_.ids();
  ListOptions options;
  options.postings_a_chunk = 1;
  const ImpactLists lists = build(ids, options);
  std::vector<std::vector<std::pair<size_t, int>>> listed(ids.size());
  const FetchedLists fetched = *lists.fetch(all_anchors(lists));
  for (size_t a = 0; a < fetched.lists.size(); ++a) {
    for (size_t i = 0; i < fetched.lists[a].passages.size(); ++i) {
      listed[fetched.lists[a].passages[i]].emplace_back(a, fetched.lists[a].impacts[i]);
    }
  }
  const FourBitQuestion& block = anchors_->blocks()[0];
  const double root = std::sqrt(static_cast<double>(kTestDimensions));
  for (size_t p = 0; p < ids.size(); ++p) {
    const PassageCodes passage = store_.passage(ids[p]);
    std::vector<int> impacts;
    for (size_t a = 0; a < lists.anchors(); ++a) {
      double best = -1e9;
      for (int c = 0; c < passage.chunks; ++c) {
        const auto* words = reinterpret_cast<const uint64_t*>(passage.codes) + c * kTestWords;
        double dot = 0.0;
        for (size_t i = 0; i < kTestDimensions; ++i) {
          dot += ((words[i / 64] >> (i % 64) & 1) != 0 ? 1 : -1) * block.levels[a * kTestDimensions + i];
        }
        best = std::max(best, dot * block.scales[a] / root);
      }
      impacts.push_back(static_cast<int>(std::clamp((best - 1.8 / root) * 400.0, 0.0, 255.0)));
    }
    for (const auto& [anchor, impact] : listed[p]) EXPECT_NEAR(impact, impacts[anchor], 1) << ids[p];
    std::sort(impacts.rbegin(), impacts.rend());
    const auto above = std::count_if(impacts.begin(), impacts.end(), [](int i) { return i > 1; });
    EXPECT_NEAR(static_cast<double>(listed[p].size()), std::min<double>(passage.chunks, above), 2) << ids[p];
    int least = 255;
    for (const auto& [anchor, impact] : listed[p]) least = std::min(least, impact);
    if (listed[p].empty()) continue;
    EXPECT_NEAR(least, impacts[listed[p].size() - 1], 1);
  }
}

TEST_F(ImpactListsTest, ThreadsChangeNothing) {
  ListOptions many;
  many.threads = 3;
  EXPECT_TRUE(equal(build(store_.ids()), build(store_.ids(), many)));
}

TEST_F(ImpactListsTest, MergedSegmentsAreWhatIsBuiltOfTheirLivingPassages) {
  const std::vector<int64_t> ids = store_.ids();
  std::vector<std::vector<int64_t>> shares(3);
  std::vector<int64_t> kept;
  for (const int64_t id : ids) shares[topics_.random()() % 3].push_back(id);
  std::vector<ImpactLists> parts;
  std::vector<PassageBits> live;
  for (const std::vector<int64_t>& share : shares) {
    parts.push_back(build(share));
    live.emplace_back(share.size(), true);
    for (size_t i = 0; i < share.size(); ++i) {
      if (topics_.random()() % 3 == 0) {
        live.back().clear(i);
      } else {
        kept.push_back(share[i]);
      }
    }
  }
  std::sort(kept.begin(), kept.end());
  const std::vector<MergePart> merging = {
      {&parts[0], &live[0]}, {&parts[1], &live[1]}, {&parts[2], &live[2]}};
  const auto merged = ImpactLists::merge(merging);
  ASSERT_TRUE(merged.ok());
  EXPECT_TRUE(equal(*merged, build(kept)));
}

TEST_F(ImpactListsTest, RefusesPassagesOutOfOrder) {
  const std::vector<int64_t> ids = {6, 3};
  EXPECT_EQ(ImpactLists::build(*anchors_, store_.passages(ids), {}).error().kind,
            ErrorKind::kInvalidArgument);
  const std::vector<int64_t> twice = {6, 6};
  EXPECT_FALSE(ImpactLists::build(*anchors_, store_.passages(twice), {}).ok());
}

TEST(ImpactSums, TakeTheLargestOfAToken) {
  const std::vector<uint16_t> passages = {0, 2};
  const std::vector<uint8_t> low = {3, 4};
  const std::vector<uint8_t> high = {1, 9};
  ImpactSums sums;
  sums.begin(3);
  sums.begin_token();
  sums.add({passages, low}, 10);
  sums.add({passages, high}, 10);
  sums.begin_token();
  sums.add({passages, low}, 1);
  EXPECT_EQ(sums.take(), (std::vector<uint32_t>{33, 0, 94}));
}

TEST(CandidateChoice, TakesTheLargestOpenSums) {
  std::mt19937 random(1);
  std::vector<std::vector<uint32_t>> sums(3);
  std::vector<PassageBits> open;
  std::vector<std::vector<int64_t>> ids(3);
  std::vector<std::pair<uint32_t, int64_t>> order;
  for (size_t s = 0; s < sums.size(); ++s) {
    open.emplace_back(500);
    for (size_t p = 0; p < 500; ++p) {
      sums[s].push_back(random() % 3 == 0 ? 0 : random() % 1'000'000);
      ids[s].push_back(static_cast<int64_t>(s * 1000 + p));
      if (random() % 4 == 0) continue;
      open[s].set(p);
      order.emplace_back(sums[s][p], ids[s][p]);
    }
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<SegmentSums> views;
  for (size_t s = 0; s < sums.size(); ++s) views.push_back({sums[s], &open[s], ids[s]});
  for (const size_t count : {size_t{0}, size_t{1}, size_t{40}, size_t{700}, order.size(), size_t{5000}}) {
    const std::vector<int64_t> chosen = choose_candidates(views, count);
    ASSERT_EQ(chosen.size(), std::min(count, order.size()));
    if (count == 0) continue;
    const uint32_t limit = order[chosen.size() - 1].first;  // exact, but for the width of a bucket
    for (const int64_t id : chosen) {
      EXPECT_GE(sums[static_cast<size_t>(id) / 1000][static_cast<size_t>(id) % 1000] + 1'000'000 / 2048,
                limit);
    }
  }
}

}  // namespace
}  // namespace rhapsode::index
