#include "kernels/page_bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attend.h"
#include "kernels/attend_test_support.h"
#include "kernels/cpu/bound_kernels.h"
#include "kernels/reference/element_double.h"

namespace rhapsode::kernels {
namespace {

using testing::normals;
using testing::Random;
using testing::uniform;
using testing::World;

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};

std::vector<BoundsShape> all_shapes() {
  std::vector<BoundsShape> shapes;
  for (const BoundKind kind : {BoundKind::kBox, BoundKind::kBall, BoundKind::kMean}) {
    for (const int slots : {16, 32, 64}) shapes.push_back({kind, slots});
  }
  return shapes;
}

// One page of random size, filled up to a random slot; keys of one dimension in three are far from zero, as
// the biased keys of Qwen2 are.
struct OnePage {
  World world;
  Page* page = nullptr;

  OnePage(Random& random, KvType type, const BoundsShape& bounds) {
    world.shape = {2, uniform(random, 1, 3), 16 * uniform(random, 1, 16), type};
    world.layer.heads = world.shape.kv_heads;
    world.layer.rope = testing::random_rope(random, world.shape.head_dim);
    page = world.add_page(random, uniform(random, 0, 1000), 0);
    const int count = uniform(random, 1, kPageTokens);
    const auto elements = static_cast<size_t>(world.shape.kv_heads * world.shape.head_dim);
    RopeTable rope(world.layer.rope);
    const std::vector<float> offsets = normals(random, elements);
    for (int slot = 0; slot < count; ++slot) {
      for (int layer = 0; layer < world.shape.layers; ++layer) {
        std::vector<float> k = normals(random, elements);
        for (size_t i = 0; i < elements; i += 3) k[i] = 0.1f * k[i] + 50.0f * offsets[i];
        const AttendSite site{layer, world.layer.heads, 1.0f, 0, 0.0f, &rope};
        reference::write_row(world.shape, site, {page, slot}, k.data(), k.data());
      }
    }
    page->count = count;
    world.add_bounds(bounds);
  }

  double score(int layer, int head, int slot, const std::vector<double>& q) const {
    const PageHeadView view = page_head(world.shape, *page, layer, head);
    const float scale = view.k_scale ? view.k_scale[slot] : 1.0f;
    double sum = 0.0;
    for (int i = 0; i < world.shape.head_dim; ++i) {
      const size_t index = key_index(world.shape.head_dim, slot, i);
      sum += q[static_cast<size_t>(i)] * reference::load_element(world.shape.type, view.k, index, scale);
    }
    return sum;
  }
};

// No score exceeds the bound of its group by more than the rounding of double; returns the mean slack.
double expect_bounded(const OnePage& one, const BoundsShape& bounds, int layer, Random& random) {
  const KvShape& shape = one.world.shape;
  // The radii of a mean are true ones, of which its estimate takes a part.
  BoundsShape full = bounds;
  if (bounds.kind == BoundKind::kMean) full.kind = BoundKind::kBox;
  double slack = 0.0;
  for (int head = 0; head < shape.kv_heads; ++head) {
    const std::vector<float> row = normals(random, static_cast<size_t>(shape.head_dim));
    const std::vector<double> q(row.begin(), row.end());
    const uint16_t* stored = bounds_of_head(shape, bounds, *one.page, layer, head);
    for (int slot = 0; slot < one.page->count; ++slot) {
      const double bound = reference::score_bound(shape, full, stored, slot / bounds.group_slots, q);
      const double score = one.score(layer, head, slot, q);
      EXPECT_LE(score, bound + 1e-9 * (1.0 + std::abs(bound))) << "slot " << slot << " of head " << head;
      slack += bound - score;
    }
  }
  return slack / (shape.kv_heads * one.page->count);
}

class PageBoundsOfType : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, PageBoundsOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(PageBoundsOfType, BoundEveryScore) {
  unsigned seed = 0;
  for (const BoundsShape& bounds : all_shapes()) {
    for (int i = 0; i < 12; ++i) {
      Random random(seed++);
      OnePage one(random, GetParam(), bounds);
      SCOPED_TRACE(fmt::format("{} of {}, d {}, {} slots", to_string(bounds.kind), bounds.group_slots,
                               one.world.shape.head_dim, one.page->count));
      reference::bound_page(one.world.shape, bounds, *one.page, 1);
      expect_bounded(one, bounds, 1, random);
      if (HasFailure()) return;
    }
  }
}

TEST_P(PageBoundsOfType, VectorKernelsBoundEveryScoreAndAreAsTightAsTheReference) {
  for (const char* target : {"", "AVX3_ZEN4", "AVX3", "AVX2", "SSE4", "SSE2", "NEON", "EMU128"}) {
    if (!cpu::force_bound_target(target)) continue;
    unsigned seed = 100;
    for (const BoundsShape& bounds : all_shapes()) {
      for (int i = 0; i < 4; ++i) {
        Random random(seed++);
        OnePage one(random, GetParam(), bounds);
        SCOPED_TRACE(fmt::format("{}: {} of {}, d {}, {} slots", target, to_string(bounds.kind),
                                 bounds.group_slots, one.world.shape.head_dim, one.page->count));
        Random queries = random;
        reference::bound_page(one.world.shape, bounds, *one.page, 1);
        const double expected = expect_bounded(one, bounds, 1, random);
        for (int head = 0; head < one.world.shape.kv_heads; ++head) {
          cpu::bound_kernels().bound({&one.world.shape, &bounds, one.page, one.page->count, 1, head});
        }
        const double slack = expect_bounded(one, bounds, 1, queries);
        EXPECT_NEAR(slack, expected, 2e-3 * (1.0 + expected));
        if (HasFailure()) return;
      }
    }
  }
  cpu::force_bound_target("");
}

TEST(PageBounds, KeysBeyondFloat16AreNeverBoundedFromBelow) {
  const BoundsShape bounds{BoundKind::kBox, 16};
  Random random(1);
  OnePage one(random, KvType::kF32, bounds);
  auto* keys = reinterpret_cast<float*>(page_head(one.world.shape, *one.page, 0, 0).k);
  keys[key_index(one.world.shape.head_dim, 0, 0)] = 1e6f;
  cpu::bound_kernels().bound({&one.world.shape, &bounds, one.page, one.page->count, 0, 0});
  std::vector<double> q(static_cast<size_t>(one.world.shape.head_dim), 0.0);
  for (const double query : {1.0, -1.0, 0.0}) {
    q[0] = query;
    const double bound = reference::score_bound(
        one.world.shape, bounds, bounds_of_head(one.world.shape, bounds, *one.page, 0, 0), 0, q);
    EXPECT_TRUE(std::isnan(bound) || bound == INFINITY) << bound;
  }
}

TEST(PageBounds, TakeTheMemoryTheyClaim) {
  const KvShape shape{24, 2, 64, KvType::kF16};
  const auto share = [&](BoundKind kind, int slots) {
    return static_cast<double>(BoundsShape{kind, slots}.block_bytes(shape)) /
           static_cast<double>(shape.block_bytes());
  };
  EXPECT_DOUBLE_EQ(share(BoundKind::kBox, 64), 1.0 / 64);
  EXPECT_DOUBLE_EQ(share(BoundKind::kBox, 16), 1.0 / 16);
  EXPECT_NEAR(share(BoundKind::kBall, 64), 1.0 / 128, 0.002);
}

TEST(PageBounds, WhatIsAlwaysReadIsTheFirstPageSinksRecentPagesAndPagesBeingWritten) {
  Page pages[6];
  std::vector<PageReference> references;
  for (Page& page : pages) references.push_back({&page});
  references[2].sink = true;
  const std::vector<RowWrite> writes = {{&pages[1], 3}};
  const std::vector<uint64_t> all(6, 1);
  EXPECT_EQ(always_read(references, all, writes), (std::vector<bool>{true, true, true, false, true, true}));
  // What is out of sight takes nobody's place.
  const std::vector<uint64_t> seen = {0, 1, 0, 1, 1, 0};
  EXPECT_EQ(always_read(references, seen, {}), (std::vector<bool>{false, true, false, true, true, false}));
}

}  // namespace
}  // namespace rhapsode::kernels
