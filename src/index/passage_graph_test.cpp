#include "index/passage_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace rhapsode::index {
namespace {

std::map<int64_t, double> scores(const PassageGraph& graph, const std::vector<int64_t>& seeds,
                                 const PageRankOptions& options = {}) {
  std::map<int64_t, double> found;
  for (const auto& [id, score] : graph.rank(seeds, options)) found[id] = score;
  return found;
}

TEST(PassageGraph, LinksPassagesThatShareARareMention) {
  const PassageGraph graph =
      PassageGraph::build({{1, 10}, {2, 10}, {2, 11}, {3, 11}, {5, 11}, {1, 10}, {9, 12}});
  EXPECT_EQ(graph.passages(), 4u);
  const std::vector<Link> links = graph.links_of(2);
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(links[0].passage, 1);
  EXPECT_FLOAT_EQ(links[0].weight, 0.5f);
  EXPECT_EQ(links[1].passage, 3);
  EXPECT_FLOAT_EQ(links[1].weight, 1.0f / 3);
  EXPECT_TRUE(graph.links_of(9).empty());  // nobody else mentions it
  EXPECT_TRUE(graph.links_of(77).empty());
}

TEST(PassageGraph, HubsLinkNothing) {
  std::vector<PassageMention> mentions;
  for (int64_t p = 0; p < 9; ++p) mentions.push_back({p, 1});
  EXPECT_EQ(PassageGraph::build(mentions).links(), 0u);
  mentions.pop_back();
  EXPECT_EQ(PassageGraph::build(mentions).links(), 8u * 7u);
}

TEST(PassageGraph, WeakHoldersLinkOnlyToOthers) {
  const PassageGraph graph = PassageGraph::build({{1, 10}, {2, 10, true}, {3, 10, true}, {1, 10, true}});
  EXPECT_EQ(graph.links_of(1).size(), 2u);
  ASSERT_EQ(graph.links_of(2).size(), 1u);
  EXPECT_EQ(graph.links_of(2)[0].passage, 1);
  EXPECT_FLOAT_EQ(graph.links_of(2)[0].weight, 1.0f / 3);
  EXPECT_EQ(PassageGraph::build({{2, 10, true}, {3, 10, true}}).links(), 0u);
}

TEST(PassageGraph, KeepsTheHeaviestLinks) {
  std::vector<PassageMention> mentions;
  for (int64_t p = 1; p < 60; ++p) {
    mentions.push_back({0, p});
    mentions.push_back({p, p});
    if (p <= 5) mentions.insert(mentions.end(), {{0, 100 + p}, {p, 100 + p}});
  }
  const std::vector<Link> links = PassageGraph::build(mentions).links_of(0);
  ASSERT_EQ(links.size(), 40u);
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(links[i].weight, 1.0f);
  EXPECT_FLOAT_EQ(links[5].weight, 0.5f);
}

// By hand: 1 - 2 - 3 in a row, seed 1, half the walks go on.
TEST(PassageGraph, RanksByPersonalisedPageRank) {
  const PassageGraph graph = PassageGraph::build({{1, 10}, {2, 10}, {2, 11}, {3, 11}});
  const std::map<int64_t, double> found = scores(graph, {1});
  // x1 = 1/2 + x2/4, x2 = x1/2 + x3/2, x3 = x2/4
  EXPECT_NEAR(found.at(1), 7.0 / 12, 1e-6);
  EXPECT_NEAR(found.at(2), 4.0 / 12, 1e-6);
  EXPECT_NEAR(found.at(3), 1.0 / 12, 1e-6);
}

TEST(PassageGraph, SeedsWithoutLinksStayAndUnreachedPassagesAreLeftOut) {
  const PassageGraph graph = PassageGraph::build({{1, 10}, {2, 10}, {4, 12}, {5, 12}});
  const auto ranked = graph.rank(std::vector<int64_t>{9, 1});
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked[0].first, 9);
  const std::map<int64_t, double> found = scores(graph, {9, 1});
  EXPECT_NEAR(found.at(9), 1.0 / 3, 1e-6);  // half of its 2/3: the other half has nowhere to go
  EXPECT_NEAR(found.at(1), 2.0 / 9, 1e-6);
  EXPECT_EQ(found.count(4), 0u);
  EXPECT_TRUE(graph.rank({}).empty());
}

// Against the definition with a dense matrix.
TEST(PassageGraph, AgreesWithADenseMatrix) {
  std::mt19937 random(3);
  std::vector<PassageMention> mentions;
  const int count = 60;
  for (int i = 0; i < 250; ++i) {
    mentions.push_back({static_cast<int64_t>(random() % count), static_cast<int64_t>(random() % 70)});
  }
  GraphOptions options;
  options.most_links = 1000;
  const PassageGraph graph = PassageGraph::build(mentions, options);
  std::vector<std::vector<double>> step(count, std::vector<double>(count));
  for (int64_t p = 0; p < count; ++p) {
    double sum = 0;
    for (const Link& link : graph.links_of(p)) sum += link.weight;
    for (const Link& link : graph.links_of(p)) {
      step[static_cast<size_t>(p)][static_cast<size_t>(link.passage)] = link.weight / sum;
    }
  }
  const std::vector<int64_t> seeds = {5, 17, 40};
  std::vector<double> start(count);
  for (size_t i = 0; i < seeds.size(); ++i)
    start[static_cast<size_t>(seeds[i])] = 1.0 / (i + 1.0) / (11.0 / 6);
  std::vector<double> x = start;
  for (int round = 0; round < 20; ++round) {
    std::vector<double> next(count);
    for (size_t i = 0; i < next.size(); ++i) next[i] = 0.7 * start[i];
    for (size_t i = 0; i < next.size(); ++i) {
      for (size_t j = 0; j < next.size(); ++j) next[j] += 0.3 * x[i] * step[i][j];
    }
    x = next;
  }
  PageRankOptions ranking;
  ranking.follow = 0.3;
  const std::map<int64_t, double> found = scores(graph, seeds, ranking);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto one = found.find(static_cast<int64_t>(i));
    EXPECT_NEAR(one == found.end() ? 0.0 : one->second, x[i], 1e-6) << i;
  }
  std::shuffle(mentions.begin(), mentions.end(), random);
  EXPECT_EQ(PassageGraph::build(mentions, options).rank(seeds), graph.rank(seeds));
}

}  // namespace
}  // namespace rhapsode::index
