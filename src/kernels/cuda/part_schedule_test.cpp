// Items packed onto blocks, or cut for them: all pages, once, and as evenly as can be.
#include "kernels/cuda/part_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <random>

namespace rhapsode::kernels::cuda {
namespace {

struct Checked {
  int64_t longest = 0;  // block, beginnings included
  double even = 0;      // what each would have if items could be cut for nothing
  int merges = 0;
};

// That every page is read once, and that partial results are merged.
Checked check(const PartCosts& costs, int blocks) {
  const PartSchedule schedule = schedule_parts(costs, blocks);
  EXPECT_EQ(schedule.parts.size() % static_cast<size_t>(blocks), 0u);
  std::vector<int64_t> sums(static_cast<size_t>(blocks));
  std::vector<std::vector<DevicePart>> of_items(costs.pages.size());
  for (size_t i = 0; i < schedule.parts.size(); ++i) {
    const DevicePart& part = schedule.parts[i];
    if (part.item < 0) continue;
    const int32_t pages = costs.pages[static_cast<size_t>(part.item)];
    sums[i % sums.size()] += std::min(part.end, pages) - part.begin + costs.begin_pages;
    of_items[static_cast<size_t>(part.item)].push_back(part);
  }
  std::vector<int32_t> slots(static_cast<size_t>(schedule.slots), -1);
  for (std::vector<DevicePart>& parts : of_items) {
    std::ranges::sort(parts, {}, &DevicePart::begin);
    int32_t next = 0;
    for (const DevicePart& part : parts) {
      EXPECT_EQ(part.begin, next);
      next = part.end;
      EXPECT_EQ(part.slot < 0, parts.size() == 1);
      if (part.slot >= 0) slots[static_cast<size_t>(part.slot)] = part.item;
    }
    EXPECT_EQ(next, INT32_MAX);
  }
  for (const DeviceMerge& merge : schedule.merges) {
    EXPECT_GE(merge.count, 2);
    for (int slot = merge.first_slot; slot < merge.first_slot + merge.count; ++slot) {
      EXPECT_EQ(slots[static_cast<size_t>(slot)], merge.item);
      slots[static_cast<size_t>(slot)] = -1;
    }
  }
  EXPECT_TRUE(std::ranges::all_of(slots, [](int32_t slot) { return slot == -1; }));
  Checked checked;
  checked.longest = std::ranges::max(sums);
  const auto items = static_cast<int64_t>(costs.pages.size());
  const auto pages = std::accumulate(costs.pages.begin(), costs.pages.end(), int64_t{0});
  checked.even = static_cast<double>(pages + items * costs.begin_pages) / blocks;
  checked.merges = static_cast<int>(schedule.merges.size());
  return checked;
}

TEST(PartSchedule, RandomItemsAreReadOnceAndEvenly) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int blocks = 1 + static_cast<int>(random() % 40);
    std::vector<int32_t> pages(1 + random() % 200);
    for (int32_t& count : pages) count = static_cast<int32_t>(random() % 1000);
    const auto begin = static_cast<int32_t>(random() % 12);
    const Checked checked = check({pages, begin}, blocks);
    // A part that is cut off begins anew, and none is cut off that is shorter than eight.
    EXPECT_LE(static_cast<double>(checked.longest), 1.04 * checked.even + 2 * begin + 10);
    if (HasFailure()) return;
  }
}

// Tiles of scattered rows, which all see nearly all pages, or the n-th of n the n-th part of them.
TEST(PartSchedule, WhatCannotBePackedIsCut) {
  constexpr int kBlocks = 132;
  for (const int tiles : {70, 149, 198, 304}) {
    SCOPED_TRACE(tiles);
    std::vector<int32_t> growing, equal(static_cast<size_t>(2 * tiles), 416);
    for (int tile = tiles; tile > 0; --tile) growing.insert(growing.end(), 2, 416 * tile / tiles);
    const Checked packed = check({growing, 8}, kBlocks);
    EXPECT_LT(static_cast<double>(packed.longest), 1.06 * packed.even);
    EXPECT_EQ(packed.merges > 0, tiles == 70);
    const Checked cut = check({equal, 8}, kBlocks);
    EXPECT_LT(static_cast<double>(cut.longest), 1.06 * cut.even);
    EXPECT_EQ(cut.merges > 0, 2 * tiles % kBlocks != 0) << "whole rounds need no cuts";
    EXPECT_LT(cut.merges, kBlocks);
  }
}

TEST(PartSchedule, NothingAndEqualItemsArePlannedToo) {
  EXPECT_TRUE(schedule_parts({{}, 3}, 7).parts.empty());
  const std::vector<int32_t> equal(14, 5);
  EXPECT_EQ(check({equal, 0}, 7).longest, 10);
  EXPECT_EQ(check({equal, 0}, 7).merges, 0);
  const std::vector<int32_t> free(3, 0);
  EXPECT_EQ(check({free, 0}, 2).longest, 0);
  const std::vector<int32_t> one{1000};
  EXPECT_LE(check({one, 2}, 4).longest, 260);
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
