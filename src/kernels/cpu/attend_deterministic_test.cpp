// Deterministic mode: a row's bytes depend on its own keys only. The same conversation is computed as one
// pass, in chunks, token by token, beside other sequences and by several threads, and every byte must agree.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attend_test_support.h"
#include "kernels/cpu/attend_schedule.h"

namespace rhapsode::kernels {
namespace {

using testing::CpuRun;
using testing::Random;
using testing::run_cpu;
using testing::uniform;
using testing::World;

constexpr int kTokens = 700;
constexpr int kPassagePages = 9;

// A prompt of kTokens tokens behind some shared passages, and the tensors of all its rows.
struct Conversation {
  World world;  // its plan stays empty: run() fills it chunk by chunk
  std::vector<PageReference> passages;
  std::vector<float> q, k, v;
  int start = 0;

  Conversation(Random& random, KvType type, const AttendLayer& layer, int kv_heads, int head_dim) {
    world.shape = {1, kv_heads, head_dim, type};
    world.layer = layer;
    world.layer.rope.dimensions = head_dim;
    for (int i = 0; i < kPassagePages; ++i) {
      Page* page = world.add_page(random, 0, i % 3 == 2 ? 17 : kPageTokens, i == 4);
      passages.push_back({page, i * 70, i == 0, i == 5 ? 0xffffffff0fffffffull : ~0ull});
    }
    start = kPassagePages * 70;
    for (int i = 0; i < kTokens; ++i) {
      world.plan.positions.push_back(start + i);
      world.plan.writes.push_back({});
    }
    world.fill_tensors(random);
    q = world.q;
    k = world.k;
    v = world.v;
  }
};

std::vector<float> rows_of(const std::vector<float>& tensor, int begin, int end) {
  const auto stride = static_cast<int64_t>(tensor.size()) / kTokens;
  return {tensor.begin() + begin * stride, tensor.begin() + end * stride};
}

// Computes the rows from 0 in chunks of the given sizes; `before` other rows run in each batch ahead of them.
std::vector<float> run(const Conversation& conversation, const std::vector<int>& chunks, int before,
                       int threads) {
  Random random(9);
  World world = conversation.world;
  std::vector<Page*> pages;
  std::vector<float> result;
  int done = 0;
  for (const int chunk : chunks) {
    world.plan = {};
    const auto other = static_cast<size_t>(before);
    for (int i = 0; i < before; ++i) {
      world.plan.positions.push_back(conversation.start + i);
      world.plan.writes.push_back({});
    }
    if (before > 0) world.plan.sequences.push_back({0, before, conversation.passages, {}, {}});
    SequencePlan sequence{before, chunk, conversation.passages, {}, {}};
    for (int i = done; i < done + chunk; ++i) {
      if (i % kPageTokens == 0) pages.push_back(world.add_page(random, conversation.start + i, 0));
      world.plan.positions.push_back(conversation.start + i);
      world.plan.writes.push_back({pages.back(), i % kPageTokens});
    }
    for (const Page* page : pages) sequence.references.push_back({page, 0, false, ~0ull});
    world.plan.sequences.push_back(sequence);
    EXPECT_TRUE(validate(world.plan, world.shape).ok());
    const auto with_others = [&](const std::vector<float>& tensor) {
      std::vector<float> rows = rows_of(tensor, done, done + chunk);
      rows.insert(rows.begin(), other * (tensor.size() / kTokens), 0.5f);
      return rows;
    };
    world.q = with_others(conversation.q);
    world.k = with_others(conversation.k);
    world.v = with_others(conversation.v);
    const std::vector<float> out = run_cpu(world, {threads, true, false, 0}).out;
    result.insert(result.end(), out.begin() + before * static_cast<int64_t>(conversation.q.size() / kTokens),
                  out.end());
    done += chunk;
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i]->count = std::min(kPageTokens, done - static_cast<int>(i) * kPageTokens);
    }
  }
  return result;
}

struct Setting {
  const char* name;
  KvType type;
  int heads;
  int kv_heads;
  int head_dim;
  int32_t window;
  float soft_cap;
};

class AttendDeterministic : public ::testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Settings, AttendDeterministic,
                         ::testing::Values(Setting{"f16", KvType::kF16, 3, 1, 64, 0, 0.0f},
                                           Setting{"windowed_int8", KvType::kI8, 7, 1, 48, 200, 0.0f},
                                           Setting{"capped_bf16", KvType::kBF16, 4, 2, 32, 0, 30.0f},
                                           Setting{"f32", KvType::kF32, 1, 1, 80, 0, 0.0f}),
                         [](const auto& setting) { return std::string(setting.param.name); });

TEST_P(AttendDeterministic, BytesDoNotDependOnHowTheWorkIsCut) {
  Random random(1);
  const Setting& setting = GetParam();
  const AttendLayer layer{setting.heads, 0.15f, setting.window, setting.soft_cap, {}};
  const Conversation conversation(random, setting.type, layer, setting.kv_heads, setting.head_dim);
  const std::vector<float> whole = run(conversation, {kTokens}, 0, 1);
  ASSERT_EQ(whole.size(), conversation.q.size());
  const auto expect_same = [&](const char* what, const std::vector<int>& chunks, int before, int threads) {
    const std::vector<float> cut = run(conversation, chunks, before, threads);
    ASSERT_EQ(cut.size(), whole.size());
    const auto bytes = whole.size() * sizeof(float);
    EXPECT_EQ(std::memcmp(cut.data(), whole.data(), bytes), 0) << what;
  };
  expect_same("two threads", {kTokens}, 0, 2);
  expect_same("seven threads", {kTokens}, 0, 7);
  expect_same("token by token", std::vector<int>(kTokens, 1), 0, 1);
  expect_same("even chunks", {256, 256, 188}, 0, 2);
  expect_same("beside other rows", {300, 400}, 5, 3);
  std::vector<int> chunks;
  for (int left = kTokens; left > 0; left -= chunks.back()) {
    chunks.push_back(std::min(left, uniform(random, 1, 90)));
  }
  expect_same("odd chunks", chunks, 3, 2);
}

TEST(AttendSchedule, CoversEveryVisibleReferenceOnce) {
  Random random(3);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const World world = testing::random_world(random, KvType::kI8);
    cpu::ResolvedLists lists;
    lists.begin(world.plan);
    cpu::Schedule schedule;
    schedule.heads = world.layer.heads;
    schedule.window = world.layer.window;
    for (int s = 0; s < static_cast<int>(world.plan.sequences.size()); ++s) {
      schedule.lists.push_back(lists.list_of(world.plan, s, 0));
    }
    const bool deterministic = uniform(random, 0, 1) == 1;
    cpu::build_schedule(world.plan, lists, {world.shape.kv_heads, uniform(random, 1, 9), deterministic},
                        schedule);
    int64_t rows = 0;
    std::vector<int> parts(schedule.blocks.size());
    std::vector<std::vector<int>> read(schedule.blocks.size());
    for (const cpu::RowBlock& block : schedule.blocks) rows += block.row_count;
    EXPECT_EQ(rows, int64_t{world.rows()} * world.layer.heads / world.shape.kv_heads);
    for (const cpu::WorkItem& item : schedule.items) {
      const auto index = static_cast<size_t>(item.block);
      const cpu::RowBlock& block = schedule.blocks[index];
      parts[index] += item.part_end - item.part_begin;
      const auto all = lists[block.list];
      read[index].resize(all.size());
      for (int part = item.part_begin; part < item.part_end; ++part) {
        const auto references = block.part(all, part);
        if (deterministic && !references.empty()) {
          const auto first = static_cast<int>(references.data() - all.data());
          EXPECT_EQ(first / cpu::kFixedPartPages,
                    (first + static_cast<int>(references.size()) - 1) / cpu::kFixedPartPages);
        }
        for (const auto& reference : references) ++read[index][static_cast<size_t>(&reference - all.data())];
      }
    }
    for (size_t i = 0; i < schedule.blocks.size(); ++i) {
      const cpu::RowBlock& block = schedule.blocks[i];
      EXPECT_EQ(parts[i], block.parts);
      const auto all = lists[block.list];
      for (size_t reference = 0; reference < all.size(); ++reference) {
        EXPECT_LE(read[i][reference], 1);
        if (cpu::may_see(all[reference], block.lowest, block.highest, schedule.window)) {
          EXPECT_EQ(read[i][reference], 1);
        }
      }
    }
  }
}

TEST(AttendSchedule, SplitsALongDecodeForManyThreads) {
  Random random(4);
  World world;
  world.shape = {1, 2, 16, KvType::kF16};
  world.layer.heads = 4;
  world.layer.rope.dimensions = 16;
  SequencePlan sequence{0, 1, {}, {}, {}};
  for (int i = 0; i < 64; ++i)
    sequence.references.push_back({world.add_page(random, i * 64, 64), 0, false, ~0ull});
  world.plan.sequences.push_back(sequence);
  world.plan.positions = {64 * 64};
  world.plan.writes = {{}};
  cpu::ResolvedLists lists;
  lists.begin(world.plan);
  cpu::Schedule schedule;
  schedule.heads = 4;
  schedule.lists = {lists.list_of(world.plan, 0, 0)};
  cpu::build_schedule(world.plan, lists, {2, 1, false}, schedule);
  EXPECT_EQ(schedule.items.size(), 1u);
  EXPECT_TRUE(schedule.split_blocks.empty());
  cpu::build_schedule(world.plan, lists, {2, 4, false}, schedule);
  EXPECT_GE(schedule.items.size() * 2, 8u);
  EXPECT_EQ(schedule.split_blocks.size(), 1u);
  EXPECT_GT(schedule.state_rows, 0);
}

}  // namespace
}  // namespace rhapsode::kernels
