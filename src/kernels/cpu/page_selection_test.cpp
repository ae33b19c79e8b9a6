// Block-sparse reading as a whole: what is chosen, what comes out, and that a large budget changes nothing.
#include "kernels/cpu/page_selection.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "kernels/attend_test_support.h"
#include "kernels/cpu/bound_kernels.h"

namespace rhapsode::kernels {
namespace {

using testing::CpuRun;
using testing::largest_difference;
using testing::Random;
using testing::random_sparse_world;
using testing::run_cpu;
using testing::run_reference;
using testing::RunResult;
using testing::uniform;
using testing::World;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};

SparseOptions random_options(Random& random) {
  const int slots[] = {16, 32, 64};
  SparseOptions options;
  constexpr BoundKind kKinds[] = {BoundKind::kBox, BoundKind::kBall, BoundKind::kMean};
  options.bounds.kind = kKinds[uniform(random, 0, 2)];
  options.bounds.group_slots = slots[uniform(random, 0, 2)];
  options.scope = uniform(random, 0, 1) ? SelectionScope::kKvHead : SelectionScope::kLayer;
  return options;
}

std::string describe(const World& world, const SparseOptions& options) {
  return fmt::format("{} {}/{} heads, d {}, window {}, {} sequences, {} of {}, scope {}",
                     to_string(world.shape.type), world.layer.heads, world.shape.kv_heads,
                     world.shape.head_dim, world.layer.window, world.plan.sequences.size(),
                     to_string(options.bounds.kind), options.bounds.group_slots,
                     static_cast<int>(options.scope));
}

using Slots = std::map<std::pair<const Page*, int32_t>, uint64_t>;

Slots slots_of(const std::vector<PageReference>& references) {
  Slots slots;
  for (const PageReference& reference : references)
    slots[{reference.page, reference.shift}] |= reference.mask;
  return slots;
}

int count(const Slots& slots) {
  int total = 0;
  for (const auto& [page, mask] : slots) total += std::popcount(mask);
  return total;
}

// Runs `use` while the pages hold the rows that the plan writes, as the reference wants them.
template <class Use>
void with_written_rows(World& world, const Use& use) {
  std::vector<int32_t> counts;
  for (const RowWrite& write : world.plan.writes) {
    counts.push_back(write.page->count);
    write.page->count = std::max(write.page->count, write.slot + 1);
  }
  use();
  for (size_t i = 0; i < counts.size(); ++i) world.plan.writes[i].page->count = counts[i];
}

// What the reference would read, over the bounds that the CPU left behind in the pages.
std::vector<std::vector<PageReference>> expected_choice(World& world, const SparseOptions& options, int s) {
  RopeTable rope(world.layer.rope);
  const AttendSite site{0,    world.layer.heads, world.layer.scale, world.layer.window, world.layer.soft_cap,
                        &rope};
  const SequencePlan& sequence = world.plan.sequences[static_cast<size_t>(s)];
  const int64_t stride = int64_t{world.layer.heads} * world.shape.head_dim;
  std::vector<std::vector<PageReference>> choice;
  with_written_rows(world, [&] {
    choice = reference::select(world.shape, options, site,
                               {world.q.data() + sequence.row_begin * stride,
                                world.plan.positions[static_cast<size_t>(sequence.row_begin)],
                                sequence.read_budget, sequence.references, world.plan.writes});
  });
  return choice;
}

// float32 and double may order groups of nearly equal bounds differently: that many groups may differ.
void expect_same_choice(const Slots& actual, const Slots& expected, int most_differing) {
  int differing = 0;
  for (const auto& [key, mask] : expected) {
    const auto found = actual.find(key);
    differing += std::popcount(mask & ~(found == actual.end() ? 0 : found->second));
  }
  EXPECT_LE(differing, most_differing);
}

// The reference's attention where each KV head of a sequence reads its own list.
std::vector<float> attend_to_choice(World& world, const RunResult& run) {
  std::vector<float> out(run.out.size());
  const BatchPlan plan = world.plan;
  const int group = world.layer.heads / world.shape.kv_heads;
  const auto d = static_cast<size_t>(world.shape.head_dim);
  const auto width = static_cast<size_t>(group) * d;
  for (int head = 0; head < world.shape.kv_heads; ++head) {
    for (size_t s = 0; s < world.plan.sequences.size(); ++s) {
      const auto& chosen = run.selected[s][static_cast<size_t>(head)];
      world.plan.sequences[s].references = chosen.empty() ? plan.sequences[s].references : chosen;
    }
    const RunResult part = run_reference(world);
    for (int row = 0; row < world.rows(); ++row) {
      const auto at = static_cast<ptrdiff_t>(
          (static_cast<size_t>(row) * static_cast<size_t>(world.shape.kv_heads) + static_cast<size_t>(head)) *
          width);
      std::copy_n(part.out.begin() + at, width, out.begin() + at);
    }
  }
  world.plan = plan;
  return out;
}

class SparseOfType : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, SparseOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(SparseOfType, ChoosesAsTheReferenceAndAttendsToExactlyThat) {
  int narrowed = 0;
  for (unsigned seed = 0; seed < 25; ++seed) {
    Random random(seed);
    const SparseOptions options = random_options(random);
    World world = random_sparse_world(random, GetParam(), options.bounds);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world, options)));
    const auto valid = validate(world.plan, world.shape);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    CpuRun run;
    run.threads = uniform(random, 1, 3);
    run.deterministic = uniform(random, 0, 1);
    run.sparse = options;
    const RunResult result = run_cpu(world, run);
    EXPECT_LE(largest_difference(result.out, attend_to_choice(world, result)),
              testing::tolerance(GetParam()));
    for (int s = 0; s < static_cast<int>(world.plan.sequences.size()); ++s) {
      const auto expected = expected_choice(world, options, s);
      for (int head = 0; head < world.shape.kv_heads; ++head) {
        const auto& chosen = result.selected[static_cast<size_t>(s)][static_cast<size_t>(head)];
        if (chosen.empty()) continue;
        ++narrowed;
        const Slots actual = slots_of(chosen);
        expect_same_choice(actual, slots_of(expected[static_cast<size_t>(head)]),
                           2 * options.bounds.group_slots);
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(narrowed, 30);
}

TEST_P(SparseOfType, ReadsNoMoreThanItsBudgetAndAlwaysWhatItMust) {
  for (unsigned seed = 50; seed < 80; ++seed) {
    Random random(seed);
    const SparseOptions options = random_options(random);
    World world = random_sparse_world(random, GetParam(), options.bounds);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world, options)));
    CpuRun run;
    run.sparse = options;
    const RunResult result = run_cpu(world, run);
    for (size_t s = 0; s < world.plan.sequences.size(); ++s) {
      const SequencePlan& sequence = world.plan.sequences[s];
      const int32_t position = world.plan.positions[static_cast<size_t>(sequence.row_begin)];
      std::vector<PageReference> seen;
      std::vector<uint64_t> masks;
      with_written_rows(world, [&] {
        for (PageReference reference : sequence.references) {
          reference.mask = visible_slots(reference, reference.page->count, position, world.layer.window);
          if (reference.mask == 0) continue;
          seen.push_back(reference);
          masks.push_back(reference.mask);
        }
      });
      std::vector<PageReference> must;
      const std::vector<bool> always = always_read(seen, masks, world.plan.writes);
      for (size_t i = 0; i < seen.size(); ++i) {
        if (always[i]) must.push_back(seen[i]);
      }
      for (const auto& chosen : result.selected[s]) {
        if (chosen.empty()) {
          EXPECT_LE(count(slots_of(seen)), sequence.read_budget);
          continue;
        }
        const Slots slots = slots_of(chosen);
        EXPECT_LE(count(slots), std::max(sequence.read_budget, count(slots_of(must))));
        for (const auto& [key, mask] : slots_of(must)) EXPECT_EQ(slots.at(key) & mask, mask);
        for (const auto& [key, mask] : slots) EXPECT_EQ(mask & ~slots_of(seen).at(key), 0u);
      }
    }
    if (HasFailure()) return;
  }
}

TEST_P(SparseOfType, ABudgetThatCoversAllChangesNoByte) {
  for (unsigned seed = 100; seed < 115; ++seed) {
    Random random(seed);
    const SparseOptions options = random_options(random);
    World world = random_sparse_world(random, GetParam(), options.bounds);
    CpuRun run;
    run.threads = uniform(random, 1, 3);
    run.deterministic = uniform(random, 0, 1);
    run.sparse = options;
    for (SequencePlan& sequence : world.plan.sequences) {
      sequence.read_budget = static_cast<int>(sequence.references.size()) * kPageTokens;
    }
    const RunResult budget = run_cpu(world, run);
    for (SequencePlan& sequence : world.plan.sequences) sequence.read_budget = 0;
    const RunResult full = run_cpu(world, run);
    EXPECT_EQ(budget.out, full.out);
    EXPECT_EQ(budget.lse, full.lse);
  }
}

TEST_P(SparseOfType, DeterministicBytesDependOnNeitherThreadsNorNeighbours) {
  for (unsigned seed = 200; seed < 212; ++seed) {
    Random random(seed);
    const SparseOptions options = random_options(random);
    World world = random_sparse_world(random, GetParam(), options.bounds);
    CpuRun run;
    run.deterministic = true;
    run.sparse = options;
    const RunResult together = run_cpu(world, run);
    run.threads = 3;
    EXPECT_EQ(run_cpu(world, run).out, together.out);
    // Only the first sequence is left.
    world.plan.sequences.resize(1);
    world.plan.positions.resize(1);
    world.plan.writes.resize(1);
    world.q.resize(static_cast<size_t>(world.layer.heads * world.shape.head_dim));
    const RunResult single = run_cpu(world, run);
    EXPECT_TRUE(std::equal(single.out.begin(), single.out.end(), together.out.begin()));
  }
}

// A context whose second page, and no other, is what the query looks for.
struct Haystack {
  World world;
  CpuRun run;

  explicit Haystack(Random& random) {
    world.shape = {1, 1, 64, KvType::kF16};
    world.layer.heads = 2;
    world.layer.scale = 1.0f;
    SequencePlan sequence;
    sequence.row_count = 1;
    for (int i = 0; i < 12; ++i) {
      sequence.references.push_back({world.add_page(random, i * kPageTokens, kPageTokens)});
    }
    sequence.read_budget = 5 * kPageTokens;  // three that are always read, and two of choice
    world.plan.sequences.push_back(sequence);
    world.plan.positions.push_back(12 * kPageTokens);
    world.plan.writes.push_back({});
    world.fill_tensors(random);
    run.sparse.bounds = {BoundKind::kBox, 64};
    aim_at(page(1), 5);
    world.add_bounds(run.sparse.bounds);
  }
  Page* page(int index) const {
    return const_cast<Page*>(world.plan.sequences.front().references[static_cast<size_t>(index)].page);
  }
  // Stores a key along the query, larger than any other.
  void aim_at(Page* target, int slot) {
    RopeTable rope(world.layer.rope);
    const AttendSite site{0, 2, 1.0f, 0, 0.0f, &rope};
    std::vector<float> key(64);
    for (size_t i = 0; i < key.size(); ++i) key[i] = 20.0f * (world.q[i] + world.q[i + 64]);
    reference::write_row(world.shape, site, {target, slot}, key.data(), key.data());
  }
  bool reads(const Page* page) {
    const RunResult result = run_cpu(world, run);
    const auto& chosen = result.selected.front().front();
    EXPECT_FALSE(chosen.empty());
    return std::any_of(chosen.begin(), chosen.end(), [&](const auto& r) { return r.page == page; });
  }
};

TEST(PageSelection, FindsTheOnePageThatMatters) {
  Random random(7);
  Haystack haystack(random);
  EXPECT_TRUE(haystack.reads(haystack.page(1)));
}

TEST(PageSelection, TiesGoToTheEarlierPage) {
  for (const bool infinite : {false, true}) {
    Random random(11);
    Haystack haystack(random);
    const KvShape& shape = haystack.world.shape;
    Page* first = haystack.page(1);
    if (infinite) reinterpret_cast<uint16_t*>(page_head(shape, *first, 0, 0).k)[0] = 0x7c00;
    for (int i = 2; i < 10; ++i) std::copy_n(first->data, shape.block_bytes(), haystack.page(i)->data);
    EXPECT_TRUE(haystack.reads(haystack.page(1)));
    EXPECT_TRUE(haystack.reads(haystack.page(2)));
    for (int i = 3; i < 10; ++i) EXPECT_FALSE(haystack.reads(haystack.page(i))) << i;
  }
}

TEST(PageSelection, BoundsAreMadeOnceAndAgainOnlyAfterAWrite) {
  Random random(8);
  Haystack haystack(random);
  Page* target = haystack.page(6);
  ASSERT_TRUE(haystack.reads(haystack.page(1)));
  // Keys that change behind the kernels' back are not noticed: the bounds are kept.
  haystack.aim_at(target, 63);
  EXPECT_FALSE(haystack.reads(target));
  EXPECT_EQ(target->bounds->slots, kPageTokens);
  EXPECT_EQ(target->bounds->layers, 1);
  // A pass that writes the page makes them void; the page itself is read in full meanwhile.
  haystack.aim_at(target, 62);
  target->count = 63;
  haystack.world.plan.writes.front() = {target, 63};
  EXPECT_TRUE(haystack.reads(target));
  EXPECT_EQ(target->bounds->slots, 0);
  target->count = 64;
  haystack.world.plan.writes.front() = {};
  EXPECT_TRUE(haystack.reads(target));
  EXPECT_EQ(target->bounds->slots, kPageTokens);
}

TEST(PageSelection, AnUnboundedKeyIsAlwaysRead) {
  Random random(9);
  Haystack haystack(random);
  haystack.world.shape.type = KvType::kF16;
  Page* target = haystack.page(4);
  // The float16 infinity: no bound can be given.
  auto* keys = reinterpret_cast<uint16_t*>(page_head(haystack.world.shape, *target, 0, 0).k);
  keys[key_index(64, 3, 3)] = 0x7c00;
  EXPECT_TRUE(haystack.reads(target));
}

TEST(PageSelection, EveryInstructionSetChoosesAlike) {
  for (const char* target : {"AVX3_ZEN4", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "EMU128"}) {
    if (!cpu::force_bound_target(target)) continue;
    for (unsigned seed = 300; seed < 306; ++seed) {
      Random random(seed);
      const SparseOptions options = random_options(random);
      World world = random_sparse_world(random, KvType::kF16, options.bounds);
      SCOPED_TRACE(fmt::format("{}, seed {}: {}", target, seed, describe(world, options)));
      CpuRun run;
      run.threads = 2;
      run.sparse = options;
      const RunResult result = run_cpu(world, run);
      for (int s = 0; s < static_cast<int>(world.plan.sequences.size()); ++s) {
        const auto expected = expected_choice(world, options, s);
        for (int head = 0; head < world.shape.kv_heads; ++head) {
          const auto& chosen = result.selected[static_cast<size_t>(s)][static_cast<size_t>(head)];
          if (chosen.empty()) continue;
          expect_same_choice(slots_of(chosen), slots_of(expected[static_cast<size_t>(head)]),
                             2 * options.bounds.group_slots);
        }
      }
    }
  }
  cpu::force_bound_target("");
}

TEST(PageSelection, PlansWithBudgetsThatCannotBeServedAreRefused) {
  Random random(10);
  World world = random_sparse_world(random, KvType::kF16, {});
  const auto refused = [&](const char* what) {
    const Status status = validate(world.plan, world.shape);
    return !status.ok() && status.error().message.find(what) != std::string::npos;
  };
  ASSERT_FALSE(refused(""));
  world.plan.sequences.front().read_budget = -1;
  EXPECT_TRUE(refused("read budget of -1 tokens"));
  world.plan.sequences.front().read_budget = 64;
  PageBounds* bounds = world.plan.sequences.front().references.front().page->bounds;
  const_cast<Page*>(world.plan.sequences.front().references.front().page)->bounds = nullptr;
  EXPECT_TRUE(refused("no room for bounds"));
  const_cast<Page*>(world.plan.sequences.front().references.front().page)->bounds = bounds;
  world.plan.sequences.front().row_count = 2;
  world.plan.positions.insert(world.plan.positions.begin(), world.plan.positions.front());
  world.plan.writes.insert(world.plan.writes.begin(), RowWrite{});
  for (size_t s = 1; s < world.plan.sequences.size(); ++s) ++world.plan.sequences[s].row_begin;
  EXPECT_TRUE(refused("decode steps of one row"));
}

}  // namespace
}  // namespace rhapsode::kernels
