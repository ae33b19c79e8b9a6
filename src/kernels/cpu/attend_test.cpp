#include "kernels/cpu/attend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/attend_test_support.h"
#include "kernels/attention_state.h"

namespace rhapsode::kernels {
namespace {

using testing::CpuRun;
using testing::largest_difference;
using testing::Random;
using testing::random_world;
using testing::run_cpu;
using testing::run_reference;
using testing::RunResult;
using testing::tolerance;
using testing::uniform;
using testing::World;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};

std::string describe(const World& world) {
  return fmt::format("{} {}/{} heads, d {}, window {}, cap {}, rope {} of {}, rows {}, sequences {}",
                     to_string(world.shape.type), world.layer.heads, world.shape.kv_heads,
                     world.shape.head_dim, world.layer.window, world.layer.soft_cap,
                     world.layer.rope.dimensions, static_cast<int>(world.layer.rope.pairing), world.rows(),
                     world.plan.sequences.size());
}

float largest_mass_difference(const std::vector<std::vector<double>>& a,
                              const std::vector<std::vector<double>>& b) {
  std::vector<float> left;
  std::vector<float> right;
  for (const auto& list : a) left.insert(left.end(), list.begin(), list.end());
  for (const auto& list : b) right.insert(right.end(), list.begin(), list.end());
  return largest_difference(left, right);
}

void compare(World& world, const CpuRun& run) {
  const RunResult expected = run_reference(world);
  const RunResult actual = run_cpu(world, run);
  const float bound = tolerance(world.shape.type);
  EXPECT_LE(largest_difference(actual.out, expected.out), bound);
  float largest_lse = 1.0f;
  for (const float lse : expected.lse) {
    if (std::isfinite(lse)) largest_lse = std::max(largest_lse, std::abs(lse));
  }
  EXPECT_LE(largest_difference(actual.lse, expected.lse), bound * std::max(4.0f, largest_lse));
  if (!run.mass) return;
  const float rows = static_cast<float>(world.rows() * world.layer.heads);
  EXPECT_LE(largest_mass_difference(actual.mass_per_reference, expected.mass_per_reference), bound * rows);
  EXPECT_LE(largest_mass_difference(actual.mass_per_token, expected.mass_per_token), bound * rows);
}

class AttendOfType : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, AttendOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(AttendOfType, EqualsReferenceOnRandomWorlds) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Random random(seed);
    World world = random_world(random, GetParam());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world)));
    const auto valid = validate(world.plan, world.shape);
    ASSERT_TRUE(valid.ok()) << valid.error().message;
    CpuRun run;
    run.threads = uniform(random, 1, 3);
    run.deterministic = uniform(random, 0, 1);
    run.mass = uniform(random, 0, 1);
    compare(world, run);
    if (HasFailure()) return;
  }
}

// Every instruction set that this CPU has, found by name: the list is Highway's.
std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const char* name : {"AVX10_2", "AVX3_SPR", "AVX3_ZEN4", "AVX3_DL", "AVX3", "AVX2", "SSE4", "SSE2",
                           "NEON_BF16", "NEON", "NEON_WITHOUT_AES", "EMU128", "SCALAR"}) {
    if (cpu::force_attend_target(name)) names.emplace_back(name);
  }
  cpu::force_attend_target("");
  return names;
}

TEST(AttendTarget, EverySupportedOneRunsAndEqualsTheReference) {
  const std::string best = cpu::attend_target();
  const std::vector<std::string> targets = supported_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.front(), best);
  for (const std::string& target : targets) {
    ASSERT_TRUE(cpu::force_attend_target(target));
    EXPECT_EQ(cpu::attend_target(), target);
    for (const KvType type : kTypes) {
      for (unsigned seed = 100; seed < 104; ++seed) {
        Random random(seed);
        World world = random_world(random, type);
        SCOPED_TRACE(fmt::format("{} seed {}: {}", target, seed, describe(world)));
        compare(world, {2, false, true, 0});
      }
    }
  }
  EXPECT_FALSE(cpu::force_attend_target("no such thing"));
  EXPECT_EQ(cpu::attend_target(), best);
}

// A world of one sequence over `pages` full pages, whose rows keep no K and V of their own.
World reading_world(Random& random, const KvShape& shape, int heads, int pages,
                    std::vector<int32_t> positions) {
  World world;
  world.shape = shape;
  world.layer.heads = heads;
  world.layer.scale = 0.2f;
  world.layer.rope.dimensions = shape.head_dim;
  SequencePlan sequence;
  for (int i = 0; i < pages; ++i) {
    sequence.references.push_back({world.add_page(random, i * kPageTokens, kPageTokens), 0, false, ~0ull});
  }
  sequence.row_count = static_cast<int32_t>(positions.size());
  world.plan.sequences.push_back(std::move(sequence));
  world.plan.writes.resize(positions.size());
  world.plan.positions = std::move(positions);
  world.fill_tensors(random);
  return world;
}

TEST(Attend, RowsThatSeeNothingGiveZeros) {
  Random random(1);
  for (const bool deterministic : {false, true}) {
    World world = reading_world(random, {1, 2, 64, KvType::kF16}, 4, 0, {3, 4, 5});
    RunResult result = run_cpu(world, {2, deterministic, true, 0});
    EXPECT_EQ(result.out, std::vector<float>(world.q.size()));
    for (const float lse : result.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());

    world = reading_world(random, {1, 2, 64, KvType::kF16}, 4, 20, {5});
    for (PageReference& reference : world.plan.sequences[0].references)
      reference.shift = 6;  // all in the future
    result = run_cpu(world, {2, deterministic, true, 0});
    EXPECT_EQ(result.out, std::vector<float>(world.q.size()));
    for (const double mass : result.mass_per_reference[0]) EXPECT_EQ(mass, 0.0);
  }
}

TEST(Attend, HiddenSlotsMayHoldAnything) {
  Random random(2);
  for (const KvType type : kTypes) {
    World world = reading_world(random, {1, 1, 48, type}, 3, 3, {150, 160, 191});
    world.layer.soft_cap = type == KvType::kI8 ? 10.0f : 0.0f;
    std::vector<PageReference>& references = world.plan.sequences[0].references;
    for (PageReference& reference : references) reference.mask &= ~0x00f0000000020301ull;
    const RunResult before = run_cpu(world);
    for (PageReference& reference : references) {
      Page* page = world.copy_page(*reference.page);
      const PageHeadView view = page_head(world.shape, *page, 0, 0);
      const auto element = static_cast<size_t>(element_bytes(type));
      for (int slot = 0; slot < kPageTokens; ++slot) {
        if (reference.mask >> slot & 1) continue;
        for (int i = 0; i < 48; ++i) std::memset(view.k + key_index(48, slot, i) * element, 0xff, element);
        std::memset(view.v + static_cast<size_t>(slot) * 48 * element, 0xff, 48 * element);
        if (view.k_scale) view.k_scale[slot] = view.v_scale[slot] = std::numeric_limits<float>::quiet_NaN();
      }
      reference.page = page;
    }
    EXPECT_EQ(run_cpu(world).out, before.out) << to_string(type);
  }
}

TEST(Attend, AShiftedPageIsThePageRotatedAnew) {
  Random random(3);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const KvShape shape{1, 2, 16 * uniform(random, 1, 8), KvType::kF32};
    const int32_t shift = uniform(random, -4000, 4000);
    World world = reading_world(random, shape, 6, 0, {});
    world.layer.rope = testing::random_rope(random, shape.head_dim);
    Page* page = world.add_page(random, uniform(random, 0, 100), 0);
    Page* moved = world.add_page(random, page->positions[0] + shift, 0);
    RopeTable rope(world.layer.rope);
    const AttendSite site{0, 6, 1.0f, 0, 0.0f, &rope};
    for (int slot = 0; slot < 50; ++slot) {
      const auto size = static_cast<size_t>(shape.kv_heads * shape.head_dim);
      const std::vector<float> k = testing::normals(random, size);
      const std::vector<float> v = testing::normals(random, size);
      reference::write_row(shape, site, {page, slot}, k.data(), v.data());
      reference::write_row(shape, site, {moved, slot}, k.data(), v.data());  // rotated in double precision
    }
    page->count = moved->count = 50;
    world.plan.positions = {moved->positions[20], moved->positions[49], moved->positions[49] + 1000};
    world.plan.writes.resize(3);
    world.plan.sequences[0].row_count = 3;
    world.fill_tensors(random);
    world.plan.sequences[0].references = {{page, shift, false, ~0ull}};
    const RunResult shifted = run_cpu(world);
    world.plan.sequences[0].references = {{moved, 0, false, ~0ull}};
    const RunResult rotated = run_cpu(world);
    EXPECT_LE(largest_difference(shifted.out, rotated.out), 3e-5f) << describe(world) << " shift " << shift;
    EXPECT_LE(largest_difference(shifted.lse, rotated.lse), 3e-5f);
  }
}

TEST(Attend, APrivatePageReplacesWhatAMaskHides) {
  Random random(4);
  for (const KvType type : kTypes) {
    World world = reading_world(random, {1, 2, 64, type}, 4, 3, {191, 150, 400});
    std::vector<PageReference>& references = world.plan.sequences[0].references;
    // Slots 7, 8 and 40 of the middle page are recomputed: once by editing a copy, once on a private page.
    Page* edited = world.copy_page(*references[1].page);
    Page* own = world.add_page(random, 0, 0, true);
    RopeTable rope(world.layer.rope);
    const AttendSite site{0, 4, 1.0f, 0, 0.0f, &rope};
    for (const int slot : {7, 8, 40}) {
      const std::vector<float> k = testing::normals(random, 128);
      const std::vector<float> v = testing::normals(random, 128);
      own->positions[static_cast<size_t>(own->count)] = edited->positions[static_cast<size_t>(slot)];
      reference::write_row(world.shape, site, {edited, slot}, k.data(), v.data());
      reference::write_row(world.shape, site, {own, own->count++}, k.data(), v.data());
    }
    const PageReference shared = references[1];
    references[1].page = edited;
    const RunResult copied = run_cpu(world);
    references[1] = shared;
    references[1].mask &= ~(1ull << 7 | 1ull << 8 | 1ull << 40);
    references.push_back({own, 0, false, ~0ull});
    const RunResult masked = run_cpu(world);
    EXPECT_LE(largest_difference(copied.out, masked.out), 2e-6f) << to_string(type);
  }
}

TEST(Attend, PartsMergeByTheirLogSumExp) {
  Random random(5);
  World world = reading_world(random, {1, 1, 64, KvType::kF16}, 2, 9, {575, 300, 700});
  const std::vector<PageReference> all = world.plan.sequences[0].references;
  const RunResult whole = run_cpu(world);
  RunResult merged;
  for (size_t begin = 0; begin < all.size(); begin += 4) {
    const auto end = std::min(all.size(), begin + 4);
    world.plan.sequences[0].references.assign(all.begin() + static_cast<int64_t>(begin),
                                              all.begin() + static_cast<int64_t>(end));
    const RunResult part = run_cpu(world);
    if (begin == 0) {
      merged = part;
      continue;
    }
    for (size_t i = 0; i < merged.lse.size(); ++i) {
      merged.lse[i] = merge_normalized(merged.lse[i], std::span(merged.out).subspan(i * 64, 64), part.lse[i],
                                       std::span(part.out).subspan(i * 64, 64));
    }
  }
  EXPECT_LE(largest_difference(merged.out, whole.out), 2e-6f);
  EXPECT_LE(largest_difference(merged.lse, whole.lse), 1e-5f);
}

TEST(Attend, LayersMayReadListsOfTheirOwn) {
  Random random(6);
  World world = reading_world(random, {2, 2, 64, KvType::kF16}, 4, 6, {400, 390});
  SequencePlan& sequence = world.plan.sequences[0];
  sequence.own_lists = {{sequence.references[4], sequence.references[2]}};
  sequence.own_index = {0, -1};
  ASSERT_TRUE(validate(world.plan, world.shape).ok());
  const RunResult own = run_cpu(world, {2, false, true, 0});
  for (const double mass : own.mass_per_reference[0]) EXPECT_EQ(mass, 0.0);  // mass is of the shared list
  const RunResult shared = run_cpu(world, {2, false, true, 1});
  EXPECT_NEAR(std::accumulate(shared.mass_per_reference[0].begin(), shared.mass_per_reference[0].end(), 0.0),
              8.0, 1e-4);
  const RunResult expected = run_reference(world);  // of layer 0
  EXPECT_LE(largest_difference(own.out, expected.out), tolerance(KvType::kF16));
  EXPECT_GT(largest_difference(shared.out, expected.out), 0.01f);
}

TEST(Attend, ExtremeScoresStayFinite) {
  Random random(7);
  World world = reading_world(random, {1, 1, 32, KvType::kF32}, 2, 3, {191, 70});
  for (float& value : world.q) value *= 1e4f;  // differences far beyond the range of exp
  compare(world, {1, false, false, 0});
  world.layer.scale = 0.0f;  // all equal: the mean of the values
  compare(world, {1, false, true, 0});
  world.layer.soft_cap = 2.0f;
  world.layer.scale = 1e6f;
  compare(world, {1, true, false, 0});
}

}  // namespace
}  // namespace rhapsode::kernels
