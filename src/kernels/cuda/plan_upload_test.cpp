#include "kernels/cuda/plan_upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/attend_test_support.h"

namespace rhapsode::kernels::cuda {
namespace {

using testing::Random;
using testing::random_world;
using testing::World;

// A packed plan, read back the way a kernel does.
struct Packed {
  const PlanPacker& packer;

  template <typename T>
  const T* at(size_t offset) const {
    return reinterpret_cast<const T*>(packer.bytes().data() + offset);
  }
  const DeviceList& list(int layer, int sequence) const {
    const int index = packer.list_row(layer) * packer.sizes().sequences + sequence;
    return at<DeviceList>(packer.offsets().lists)[index];
  }
  const DeviceReference& reference(int index) const {
    return at<DeviceReference>(packer.offsets().references)[index];
  }
  int32_t position(const DeviceReference& reference, int slot) const {
    if (reference.gathered < 0) return reference.first + slot;
    return at<int32_t>(packer.offsets().gathered)[reference.gathered * kPageTokens + slot];
  }
  int32_t negated_shift(const DeviceReference& reference) const {
    return at<int32_t>(packer.offsets().angles)[2 * packer.sizes().rows + reference.shift_row];
  }
};

uint64_t seen(const Packed& packed, const DeviceReference& reference, int32_t position, int32_t window) {
  uint64_t slots = 0;
  for (int slot = 0; slot < kPageTokens; ++slot) {
    if (!(reference.mask >> slot & 1)) continue;
    const int distance = position - packed.position(reference, slot);
    if (distance >= 0 && (window == 0 || reference.sink || distance < window)) slots |= 1ull << slot;
  }
  return slots;
}

std::vector<int32_t> counting(int count) {
  std::vector<int32_t> values(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i;
  return values;
}

TEST(PlanPacker, EveryRowSeesWhatThePlanSays) {
  PlanPacker packer(1);
  for (unsigned seed = 0; seed < 25; ++seed) {
    Random random(seed);
    World world = random_world(random, KvType::kF16);
    ASSERT_TRUE(validate(world.plan, world.shape).ok());
    const std::vector<int32_t> tokens = counting(world.rows());
    packer.pack({tokens, &world.plan, {}});
    const Packed packed{packer};
    std::unordered_map<const Page*, int> filled;
    for (const RowWrite& write : world.plan.writes) {
      if (write.page) filled[write.page] = std::max(filled[write.page], write.slot + 1);
    }
    for (int s = 0; s < packer.sizes().sequences; ++s) {
      const SequencePlan& sequence = world.plan.sequences[static_cast<size_t>(s)];
      const DeviceList list = packed.list(0, s);
      int next = list.begin;
      for (const PageReference& reference : sequence.references) {
        const int count = std::max(reference.page->count, filled[reference.page]);
        if (visible_slots(reference, count, kMaxPosition, 0) == 0) continue;  // left out
        const DeviceReference& got = packed.reference(next++);
        EXPECT_EQ(got.data, reference.page->data);
        EXPECT_EQ(packed.negated_shift(got), -reference.shift);
        for (int row = sequence.row_begin; row < sequence.row_begin + sequence.row_count; ++row) {
          const int32_t position = world.plan.positions[static_cast<size_t>(row)];
          ASSERT_EQ(seen(packed, got, position, world.layer.window),
                    visible_slots(reference, count, position, world.layer.window))
              << "seed " << seed << " row " << row;
          ASSERT_EQ(packed.at<int32_t>(packer.offsets().row_sequence)[row], s);
        }
      }
      EXPECT_EQ(next, list.begin + list.count);
    }
  }
}

TEST(PlanPacker, APassWaitsForTheLatestPageThatItReads) {
  for (const KvType type : {KvType::kF16, KvType::kI8}) {
    Random random(11);
    World world = random_world(random, type);
    const std::vector<int32_t> tokens = counting(world.rows());
    PlanPacker packer(1);
    packer.pack({tokens, &world.plan, {}});
    EXPECT_EQ(packer.arrival(), 0u);
    std::vector<Page*> read;
    for (const SequencePlan& sequence : world.plan.sequences) {
      for (const PageReference& reference : sequence.references) {
        if (visible_slots(reference, reference.page->count, kMaxPosition, 0) == 0) continue;
        read.push_back(const_cast<Page*>(reference.page));
      }
    }
    ASSERT_GT(read.size(), 1u);
    read.front()->arrival = 7;
    read.back()->arrival = 5;
    packer.pack({tokens, &world.plan, {}});
    EXPECT_EQ(packer.arrival(), read.front() == read.back() ? 5u : 7u);
    for (SequencePlan& sequence : world.plan.sequences) {
      for (PageReference& reference : sequence.references) {
        if (reference.page == read.front()) reference.mask = 0;  // nobody looks at it
      }
    }
    packer.pack({tokens, &world.plan, {}});
    EXPECT_EQ(packer.arrival(), read.front() == read.back() ? 0u : 5u);
  }
}

TEST(PlanPacker, RowsKeepTheirTokensPositionsAndTargets) {
  Random random(3);
  World world = random_world(random, KvType::kF16);
  const int rows = world.rows();
  std::vector<int32_t> tokens = counting(rows);
  for (int32_t& token : tokens) token += 1000;
  const std::vector<int32_t> outputs = {rows - 1};
  PlanPacker packer(1);
  packer.pack({tokens, &world.plan, outputs});
  const Packed packed{packer};
  for (int row = 0; row < rows; ++row) {
    EXPECT_EQ(packed.at<int32_t>(packer.offsets().tokens)[row], 1000 + row);
    EXPECT_EQ(packed.at<int32_t>(packer.offsets().angles)[row], world.plan.positions[row]);
    const RowWrite& write = world.plan.writes[row];
    const DeviceWrite& got = packed.at<DeviceWrite>(packer.offsets().writes)[row];
    EXPECT_EQ(got.data, write.page ? write.page->data : nullptr);
    if (!write.page) continue;
    EXPECT_EQ(got.slot, write.slot);
    EXPECT_EQ(packed.at<int32_t>(packer.offsets().angles)[rows + row], write.page->positions[write.slot]);
  }
  EXPECT_EQ(packed.at<int32_t>(packer.offsets().output_rows)[0], rows - 1);
  EXPECT_EQ(packer.sizes().outputs, 1);
  for (const size_t offset : {packer.offsets().tokens, packer.offsets().writes, packer.offsets().references,
                              packer.offsets().lists, packer.offsets().gathered}) {
    EXPECT_EQ(offset % 16, 0u);
  }
}

TEST(PlanPacker, TilesHoldEveryRowOnceAndOutputTilesTheOutputRows) {
  const TileRule rule{2, 5, 8};
  PlanPacker packer(1, rule);
  for (unsigned seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    World world = random_world(random, KvType::kF16);
    const std::vector<int32_t> tokens = counting(world.rows());
    std::vector<int32_t> outputs;
    for (int row = 0; row < world.rows(); ++row) {
      if (testing::uniform(random, 0, 3) > 0) outputs.push_back(row);
    }
    packer.pack({tokens, &world.plan, outputs});
    const Packed packed{packer};
    // Tiles begin and end with a row that is asked for; those between may be others.
    const auto check = [&](size_t offset, int narrow, int wide, const std::vector<int32_t>& rows) {
      const auto asked = [&](int32_t row) { return std::ranges::binary_search(rows, row); };
      std::vector<int32_t> held;
      for (int i = 0; i < narrow + wide; ++i) {
        const DeviceTile& tile = packed.at<DeviceTile>(offset)[i];
        ASSERT_GE(tile.row_count, 1);
        EXPECT_LE(tile.row_count, i < narrow ? rule.narrow_rows : rule.wide_rows);
        const SequencePlan& sequence = world.plan.sequences[static_cast<size_t>(tile.sequence)];
        EXPECT_GE(tile.row_begin, sequence.row_begin);
        EXPECT_LE(tile.row_begin + tile.row_count, sequence.row_begin + sequence.row_count);
        EXPECT_TRUE(asked(tile.row_begin) && asked(tile.row_begin + tile.row_count - 1)) << i;
        for (int row = 0; row < tile.row_count; ++row) held.push_back(tile.row_begin + row);
      }
      std::ranges::sort(held);
      EXPECT_EQ(std::ranges::adjacent_find(held), held.end()) << "a row of two tiles is written twice";
      std::erase_if(held, [&](int32_t row) { return !asked(row); });
      EXPECT_EQ(held, rows);
    };
    const PlanSizes& sizes = packer.sizes();
    check(packer.offsets().tiles, sizes.narrow_tiles, sizes.wide_tiles, counting(world.rows()));
    check(packer.offsets().output_tiles, sizes.narrow_output_tiles, sizes.wide_output_tiles, outputs);
  }
}

// One sequence, no pages: how many tiles its output rows come to.
PlanSizes tiles_of(int rows, const std::vector<int32_t>& outputs) {
  World world;
  world.shape = {1, 1, 16, KvType::kF32};
  world.layer.heads = 1;
  world.layer.rope.dimensions = 16;
  SequencePlan sequence;
  sequence.row_count = rows;
  world.plan.sequences = {sequence};
  world.plan.positions = counting(rows);
  world.plan.writes.resize(static_cast<size_t>(rows));
  PlanPacker packer(1, TileRule{2, 5, 8});
  const std::vector<int32_t> tokens = counting(rows);
  packer.pack({tokens, &world.plan, outputs});
  return packer.sizes();
}

// Every tile reads all pages.
TEST(PlanPacker, OutputRowsWithGapsAreNoMoreTilesThanAllRows) {
  std::vector<int32_t> outputs;
  for (int row = 0; row < 40; row += 2) outputs.push_back(row);
  PlanSizes sizes = tiles_of(40, outputs);
  EXPECT_EQ(sizes.wide_tiles, 8);
  EXPECT_EQ(sizes.narrow_output_tiles, 0);
  EXPECT_EQ(sizes.wide_output_tiles, 7) << "five rows from 0, 6, 12, ...";

  sizes = tiles_of(40, {0, 10, 20, 30});
  EXPECT_EQ(sizes.narrow_output_tiles, 4) << "as many narrow ones as eight rows side by side would be";
  EXPECT_EQ(sizes.wide_output_tiles, 0);
  sizes = tiles_of(40, {0, 8, 16, 24, 32});
  EXPECT_EQ(sizes.narrow_output_tiles, 0) << "few rows, but five narrow tiles";
  EXPECT_EQ(sizes.wide_output_tiles, 5);
  sizes = tiles_of(40, {32, 33, 34, 35, 36, 37, 38, 39});
  EXPECT_EQ(sizes.narrow_output_tiles, 4);
  sizes = tiles_of(40, {});
  EXPECT_EQ(sizes.narrow_output_tiles + sizes.wide_output_tiles, 0);
}

// Scattered rows of one sequence: every tile's pages once, and blocks that end together.
TEST(PlanPacker, PartsHoldThePagesOfWideTilesAndAreEven) {
  constexpr int kRows = 400;
  constexpr int kPages = 200;
  const TileRule rule{1, 5, 0, 2, 60};
  for (const bool late : {false, true}) {  // rows that see more and more, and rows that all see nearly all
    SCOPED_TRACE(late);
    World world;
    Random random(9);
    world.shape = {1, 2, 16, KvType::kF32};
    world.layer.heads = 2;
    world.layer.rope.dimensions = 16;
    SequencePlan sequence;
    for (int page = 0; page < kPages; ++page) {
      sequence.references.push_back({world.add_page(random, page * kPageTokens, kPageTokens), 0});
    }
    sequence.row_count = kRows;
    world.plan.sequences.push_back(sequence);
    for (int row = 0; row < kRows; ++row) {
      const int end = kPages * kPageTokens - kRows;
      world.plan.positions.push_back(late ? end + row : row * end / kRows);
    }
    world.plan.writes.resize(kRows);
    PlanPacker packer(1, rule);
    const std::vector<int32_t> tokens = counting(kRows);
    packer.pack({tokens, &world.plan, {}});
    const Packed packed{packer};
    const PlanSizes& sizes = packer.sizes();
    const int items = sizes.wide_tiles * rule.wide_heads;
    ASSERT_EQ(items, 160);
    EXPECT_EQ(sizes.part_slots > 0, late) << "only where packing is uneven";
    std::vector<std::vector<int>> seen(static_cast<size_t>(items), std::vector<int>(kPages));
    std::vector<int> pages(static_cast<size_t>(rule.wide_blocks));
    std::vector<int> parts_of(static_cast<size_t>(items));
    std::vector<int> slots(static_cast<size_t>(sizes.part_slots), -1);
    for (int i = 0; i < sizes.part_rounds * rule.wide_blocks; ++i) {
      const DevicePart& part = packed.at<DevicePart>(packer.offsets().parts)[i];
      if (part.item < 0) continue;
      ++parts_of[static_cast<size_t>(part.item)];
      if (part.slot >= 0) slots[static_cast<size_t>(part.slot)] = part.item;
      const DeviceTile& tile = packed.at<DeviceTile>(packer.offsets().tiles)[part.item / rule.wide_heads];
      const int last = world.plan.positions[static_cast<size_t>(tile.row_begin + tile.row_count - 1)];
      for (int page = part.begin; page < std::min(kPages, part.end); ++page) {
        ++seen[static_cast<size_t>(part.item)][static_cast<size_t>(page)];
        pages[static_cast<size_t>(i % rule.wide_blocks)] += page <= last / kPageTokens ? 1 : 0;
      }
    }
    for (const std::vector<int>& item : seen) {
      for (const int times : item) ASSERT_EQ(times, 1);
    }
    const int sum = std::accumulate(pages.begin(), pages.end(), 0);
    EXPECT_LT(std::ranges::max(pages), 1.15 * sum / rule.wide_blocks);
    std::vector<int> merged(static_cast<size_t>(sizes.part_slots));
    for (int i = 0; i < sizes.merges; ++i) {
      const DeviceMerge& merge = packed.at<DeviceMerge>(packer.offsets().merges)[i];
      EXPECT_EQ(merge.count, parts_of[static_cast<size_t>(merge.item)]);
      for (int slot = merge.first_slot; slot < merge.first_slot + merge.count; ++slot) {
        EXPECT_EQ(slots[static_cast<size_t>(slot)], merge.item);
        ++merged[static_cast<size_t>(slot)];
      }
    }
    for (const int times : merged) EXPECT_EQ(times, 1);

    // Too few items for planning, and so many that turns do as well.
    for (const int blocks : {320, 20}) {
      PlanPacker other(1, {1, 5, 0, 2, blocks});
      other.pack({tokens, &world.plan, {}});
      EXPECT_EQ(other.sizes().part_rounds, 0) << blocks;
    }
  }
}

// A list of pages in frames of so many.
SequencePlan in_frames(World& world, Random& random, const std::vector<int>& frames) {
  SequencePlan sequence;
  int position = 0;
  for (const int pages : frames) {
    const int shift = position;
    for (int i = 0; i < pages; ++i, position += kPageTokens) {
      sequence.references.push_back({world.add_page(random, position - shift, kPageTokens), shift});
    }
  }
  sequence.row_begin = world.rows();
  sequence.row_count = static_cast<int>(world.plan.sequences.size()) + 1;
  world.plan.positions.resize(world.plan.positions.size() + static_cast<size_t>(sequence.row_count),
                              position);
  world.plan.writes.resize(world.plan.positions.size());
  return sequence;
}

TEST(PlanPacker, RunsHoldEveryPageOnceAndOneFrameEach) {
  Random random(8);
  World world;
  world.shape = {1, 1, 16, KvType::kF32};
  world.layer.heads = 1;
  world.layer.rope.dimensions = 16;
  for (const std::vector<int>& frames : {std::vector{1, 7, 8, 9, 40}, std::vector{17}, std::vector{2, 2}}) {
    world.plan.sequences.push_back(in_frames(world, random, frames));
  }
  const std::vector<int32_t> tokens = counting(world.rows());
  PlanPacker packer(1);
  packer.pack({tokens, &world.plan, {}});
  EXPECT_EQ(packer.sizes().runs, 0) << "only passes that keep attention mass have any";
  packer.pack({tokens, &world.plan, {}, true});
  const Packed packed{packer};
  EXPECT_EQ(packer.sizes().most_rows, 3);
  // 1, 7, 8, 5 and 4, 8 five times; 6, 6 and 5; 2 and 2.
  ASSERT_EQ(packer.sizes().runs, 15);
  std::vector<int> held(static_cast<size_t>(packer.reference_count()));
  for (int i = 0; i < packer.sizes().runs; ++i) {
    const DevicePageRun& run = packed.at<DevicePageRun>(packer.offsets().runs)[i];
    ASSERT_GE(run.count, 1);
    ASSERT_LE(run.count, kMostRunPages);
    const DeviceList list = packed.list(0, run.sequence);
    ASSERT_GE(run.begin, list.begin);
    ASSERT_LE(run.begin + run.count, list.begin + list.count);
    for (int32_t r = run.begin; r < run.begin + run.count; ++r) {
      ++held[static_cast<size_t>(r)];
      EXPECT_EQ(packed.reference(r).shift_row, packed.reference(run.begin).shift_row);
    }
  }
  for (const int times : held) EXPECT_EQ(times, 1);
}

TEST(PlanPacker, LayersMayReadListsOfTheirOwn) {
  World world;
  Random random(5);
  world.shape = {3, 1, 16, KvType::kF32};
  world.layer.heads = 1;
  world.layer.rope.dimensions = 16;
  Page* a = world.add_page(random, 0, kPageTokens);
  Page* b = world.add_page(random, 64, kPageTokens);
  SequencePlan first;
  first.row_count = 1;
  first.references = {{a}, {b}};
  SequencePlan second = first;
  second.row_begin = 1;
  first.own_index = {-1, 0, -1};
  first.own_lists = {{{b, 5}}};
  world.plan.sequences = {first, second};
  world.plan.positions = {200, 200};
  world.plan.writes.resize(2);
  const std::vector<int32_t> tokens = {1, 2};
  PlanPacker packer(3);
  packer.pack({tokens, &world.plan, {}});
  const Packed packed{packer};
  EXPECT_EQ(packer.list_row(0), 0);
  EXPECT_EQ(packer.list_row(1), 1);
  EXPECT_EQ(packer.list_row(2), 0);
  EXPECT_EQ(packed.list(0, 0).count, 2);
  ASSERT_EQ(packed.list(1, 0).count, 1);
  EXPECT_EQ(packed.reference(packed.list(1, 0).begin).data, b->data);
  EXPECT_EQ(packed.reference(packed.list(1, 0).begin).first, 69);
  EXPECT_EQ(packed.list(1, 1).begin, packed.list(0, 1).begin);
  EXPECT_EQ(packer.sizes().shifts, 64) << "two, rounded up";
  EXPECT_EQ(packer.sizes().most_references, 2);
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
