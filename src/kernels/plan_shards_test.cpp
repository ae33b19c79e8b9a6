// Shares of a plan, attended to one by one and merged, are the plan: against the reference, which sees all of
// it.
#include "kernels/plan_shards.h"

#include <gtest/gtest.h>

#include "kernels/attend_test_support.h"
#include "kernels/collective.h"
#include "kernels/lanes.h"
#include "kernels/shard_exchange.h"

namespace rhapsode::kernels {
namespace {

using testing::CpuRun;
using testing::largest_difference;
using testing::Random;
using testing::random_world;
using testing::run_cpu;
using testing::run_reference;
using testing::RunResult;
using testing::uniform;
using testing::World;

enum class Runner { kReference, kCpu };

// Every device's share of the world by itself, and then what each device has behind the exchange.
std::vector<RunResult> run_shards(World& world, int devices, Runner runner, int threads = 1) {
  CpuRun cpu;
  cpu.threads = threads;
  PlanShards shards(devices);
  const Status cut = shards.cut(world.plan);
  EXPECT_TRUE(cut.ok()) << cut.error().message;
  const BatchPlan whole = world.plan;
  std::vector<RunResult> results;
  for (int device = 0; device < devices; ++device) {
    world.plan = shards.share(device);
    results.push_back(runner == Runner::kCpu ? run_cpu(world, cpu) : run_reference(world));
  }
  world.plan = whole;
  const auto ends = host_collective(devices);
  const auto lanes = Lanes::start(devices).value();
  const Status exchanged = lanes->run([&](int device) {
    RunResult& result = results[static_cast<size_t>(device)];
    ShardExchange exchange;
    ShardRows part;
    part.rows = world.rows();
    part.heads = world.layer.heads;
    part.head_dim = world.shape.head_dim;
    part.out = result.out.data();
    part.out_stride = int64_t{world.layer.heads} * world.shape.head_dim;
    part.lse = result.lse;
    return exchange.run(*ends[static_cast<size_t>(device)], part);
  });
  EXPECT_TRUE(exchanged.ok());
  return results;
}

class ShardedAttend : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, ShardedAttend,
                         ::testing::Values(KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(ShardedAttend, SharesOfRandomPlansAreThePlan) {
  Random random(11);
  for (int i = 0; i < 15; ++i) {
    World world = random_world(random, GetParam());
    const RunResult whole = run_reference(world);
    const RunResult alone = run_cpu(world, {});
    for (const int devices : {1, 2, 3}) {
      SCOPED_TRACE("world " + std::to_string(i) + " on " + std::to_string(devices));
      world.spread(random, devices);
      if (devices == 2) {
        const std::vector<RunResult> exact = run_shards(world, devices, Runner::kReference);
        EXPECT_LE(largest_difference(exact[0].out, whole.out), 2e-6f);
        EXPECT_LE(largest_difference(exact[0].lse, whole.lse), 4e-6f);
      }
      const std::vector<RunResult> fast = run_shards(world, devices, Runner::kCpu, 1 + i % 3);
      EXPECT_LE(largest_difference(fast[0].out, whole.out), testing::tolerance(GetParam()));
      EXPECT_LE(largest_difference(fast[0].lse, whole.lse), testing::tolerance(GetParam()));
      // Every device goes on from the same bytes; one alone from those it would have had without shards.
      for (const RunResult& other : fast) EXPECT_TRUE(other.out == fast[0].out && other.lse == fast[0].lse);
      if (devices == 1 && i % 3 == 0) {
        EXPECT_EQ(fast[0].out, alone.out);
      }
    }
  }
}

BatchPlan plan_of(std::vector<Page>& pages) {
  BatchPlan plan;
  SequencePlan sequence;
  sequence.row_count = 2;
  for (const Page& page : pages) sequence.references.push_back({&page, 5, true, 3});
  sequence.own_index = {-1, 0};
  sequence.own_lists.push_back({{&pages[2], 1, false, 1}, {&pages[0], 2, false, 2}});
  plan.sequences.push_back(sequence);
  plan.positions = {9, 10};
  plan.writes = {{&pages[1], 4}, {&pages[2], 0}};
  return plan;
}

TEST(PlanShards, KeepOrderAndKnowWhereTheyCameFrom) {
  std::vector<Page> pages(4);
  for (size_t i = 0; i < pages.size(); ++i) pages[i].device = static_cast<int32_t>(i % 2);
  const BatchPlan plan = plan_of(pages);
  PlanShards shards(3);
  for (int round = 0; round < 2; ++round) ASSERT_TRUE(shards.cut(plan).ok());  // what was there is gone
  const BatchPlan& even = shards.share(0);
  ASSERT_EQ(even.sequences.size(), 1u);
  ASSERT_EQ(even.sequences[0].references.size(), 2u);
  EXPECT_EQ(even.sequences[0].references[1].page, &pages[2]);
  EXPECT_EQ(even.sequences[0].references[1].shift, 5);
  EXPECT_EQ(even.sequences[0].references[1].mask, 3u);
  EXPECT_TRUE(even.sequences[0].references[1].sink);
  EXPECT_EQ(std::vector<int32_t>(shards.origins(0, 0).begin(), shards.origins(0, 0).end()),
            (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(even.sequences[0].of_layer(1).size(), 2u);
  EXPECT_EQ(shards.share(1).sequences[0].of_layer(1).size(), 0u);
  EXPECT_EQ(even.writes[0].page, nullptr);
  EXPECT_EQ(even.writes[1].page, &pages[2]);
  EXPECT_EQ(shards.share(1).writes[0].slot, 4);
  EXPECT_EQ(shards.share(2).sequences[0].references.size(), 0u);
  EXPECT_EQ(shards.share(2).sequences[0].row_count, 2);
  EXPECT_EQ(shards.share(2).positions, plan.positions);
}

TEST(PlanShards, RefusePagesOfNoDevice) {
  for (const int32_t stray : {-1, 2}) {
    for (size_t which = 0; which < 4; ++which) {
      std::vector<Page> pages(4);
      pages[which].device = stray;
      PlanShards shards(2);
      EXPECT_FALSE(shards.cut(plan_of(pages)).ok()) << which;
    }
  }
}

}  // namespace
}  // namespace rhapsode::kernels
