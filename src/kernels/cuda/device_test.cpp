// What only a GPU can show: kernels against the reference in double precision. Skipped where there is none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/cuda/attend_ring.h"
#include "kernels/cuda/attend_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_world.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/part_schedule.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda {
namespace {

using testing::largest_difference;
using testing::Random;
using testing::random_world;
using testing::run_reference;
using testing::RunResult;
using testing::tolerance;
using testing::uniform;
using testing::World;

#define RH_REQUIRE_GPU() \
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device()

std::string describe(const World& world) {
  return fmt::format("{} {}/{} heads, d {}, window {}, cap {}, rope {} of {}, rows {}, sequences {}",
                     to_string(world.shape.type), world.layer.heads, world.shape.kv_heads,
                     world.shape.head_dim, world.layer.window, world.layer.soft_cap,
                     world.layer.rope.dimensions, static_cast<int>(world.layer.rope.pairing), world.rows(),
                     world.plan.sequences.size());
}

void compare(World& world, const DeviceRun& run, float bound) {
  const RunResult expected = run_reference(world);
  const DeviceResult actual = run_device(world, run);
  const float rounding = run.out == Element::kBF16 ? 0.03f : 0.0f;
  EXPECT_LE(largest_difference(actual.out, expected.out), bound + rounding);
  float largest_lse = 1.0f;
  for (const float lse : expected.lse) {
    if (std::isfinite(lse)) largest_lse = std::max(largest_lse, std::abs(lse));
  }
  EXPECT_LE(largest_difference(actual.lse, expected.lse), bound * std::max(4.0f, largest_lse));
  if (!run.mass) return;
  ASSERT_EQ(actual.mass_per_token.size(), expected.mass_per_token.size());
  for (size_t s = 0; s < expected.mass_per_token.size(); ++s) {
    ASSERT_EQ(actual.mass_per_token[s].size(), expected.mass_per_token[s].size());
    for (size_t i = 0; i < expected.mass_per_token[s].size(); ++i) {
      const double mass = expected.mass_per_token[s][i];
      ASSERT_NEAR(actual.mass_per_token[s][i], mass, 4 * bound * (mass + 1)) << "slot " << i << " of " << s;
    }
  }
}

void run_rows(const DeviceAttend& call, const TileList& tiles, int) {
  attend_rows(call, tiles, nullptr);
}

// splits 0: as many as the schedule chooses.
AttendKernel run_ring(int splits) {
  return [splits](const DeviceAttend& call, const TileList& tiles, int most_references) {
    RingSchedule schedule{tiles};
    schedule.splits = splits > 0 ? splits : ring_splits(call.shape, tiles.count, most_references);
    DeviceBuffer partials;
    const size_t bytes = ring_workspace_bytes(call.shape, tiles.count, schedule.splits);
    ASSERT_TRUE(partials.allocate(bytes, "partial results").ok());
    schedule.partials = partials.as<float>();
    attend_ring(call, schedule, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
}

// Blocks have parts planned for them, some of which are cut: as if every item had so many pages.
AttendKernel run_planned_ring(int pages) {
  return [pages](const DeviceAttend& call, const TileList& tiles, int most_references) {
    RingSchedule schedule{tiles};
    const std::vector<int32_t> costs(static_cast<size_t>(tiles.count * call.shape.kv_heads),
                                     std::min(pages, most_references));
    const PartSchedule planned = schedule_parts({costs, 0}, kProcessors);
    DeviceBuffer parts, merges, partials;
    ASSERT_TRUE(parts.allocate(planned.parts.size() * sizeof(DevicePart), "parts").ok());
    ASSERT_TRUE(parts.upload(std::as_bytes(std::span(planned.parts))).ok());
    ASSERT_TRUE(merges.reserve(planned.merges.size() * sizeof(DeviceMerge), "merges").ok());
    ASSERT_TRUE(merges.upload(std::as_bytes(std::span(planned.merges))).ok());
    ASSERT_TRUE(partials.reserve(ring_slots_bytes(call.shape, planned.slots), "partial results").ok());
    schedule.partials = partials.as<float>();
    schedule.planned = {parts.as<const DevicePart>(), static_cast<int>(planned.parts.size()) / kProcessors,
                        merges.as<const DeviceMerge>(), static_cast<int>(planned.merges.size())};
    attend_ring(call, schedule, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
}

// splits 0: as many as the schedule chooses.
AttendKernel run_stream(int splits) {
  return [splits](const DeviceAttend& call, const TileList& tiles, int most_references) {
    StreamSchedule schedule{tiles};
    schedule.splits =
        splits > 0 ? splits : stream_splits(call.shape, call.heads, tiles.count, most_references);
    DeviceBuffer partials;
    ASSERT_TRUE(partials
                    .allocate(stream_workspace_bytes(call.shape, call.heads, tiles.count, schedule.splits),
                              "partial results")
                    .ok());
    schedule.partials = partials.as<float>();
    attend_stream(call, schedule, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
}

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};

class DeviceAttendOfType : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, DeviceAttendOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(DeviceAttendOfType, RowsEqualTheReferenceOnRandomWorlds) {
  RH_REQUIRE_GPU();
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random random(seed);
    World world = random_world(random, GetParam());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world)));
    ASSERT_TRUE(validate(world.plan, world.shape).ok());
    DeviceRun run{run_rows, uniform(random, 1, 5)};
    run.mass = true;
    if (seed % 3 == 0) run.out = Element::kBF16;
    compare(world, run, tolerance(GetParam()));
    if (HasFailure()) return;
  }
}

// A random world with the page type and one of the head dimensions that tensor cores are used for.
World matrix_world(Random& random, KvType type) {
  World world = random_world(random, type);
  while (world.shape.head_dim != 64 && world.shape.head_dim != 128) world = random_world(random, type);
  return world;
}

// Queries and probabilities are rounded to the page's 16 bits; int8 pages are read as f16.
float matrix_tolerance(KvType type) {
  return type == KvType::kBF16 ? 4e-2f : 4e-3f + tolerance(type);
}

TEST_P(DeviceAttendOfType, StreamEqualsTheReferenceOnRandomWorlds) {
  RH_REQUIRE_GPU();
  if (!can_stream({1, 1, 64, GetParam()})) GTEST_SKIP() << "pages of this type are read by rows";
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random random(seed);
    World world = matrix_world(random, GetParam());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world)));
    const int group = world.layer.heads / world.shape.kv_heads;
    DeviceRun run{run_stream(uniform(random, 0, 10)), stream_tile_rows(group)};
    run.mass = true;
    if (seed % 3 == 0) run.out = Element::kBF16;
    compare(world, run, matrix_tolerance(GetParam()));
    if (HasFailure()) return;
  }
}

TEST_P(DeviceAttendOfType, RingEqualsTheReferenceOnRandomWorlds) {
  RH_REQUIRE_GPU();
  if (!can_attend_ring({1, 1, 64, GetParam()}, 1)) GTEST_SKIP() << "pages of this type are read by rows";
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random random(seed);
    World world = matrix_world(random, GetParam());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world)));
    DeviceRun run{seed % 4 == 1 ? run_planned_ring(uniform(random, 9, 40)) : run_ring(uniform(random, 0, 4)),
                  ring_tile_rows(world.shape.head_dim, world.layer.heads / world.shape.kv_heads)};
    run.mass = true;
    if (seed % 3 == 0) run.out = Element::kBF16;
    compare(world, run, matrix_tolerance(GetParam()));
    if (HasFailure()) return;
  }
}

// Bytes of a page as values, for comparing what two writers made of the same rows.
std::vector<float> values_of(const World& world, std::span<const std::byte> block, int slot) {
  Page page;
  page.data = const_cast<std::byte*>(block.data());
  std::vector<float> values;
  const int d = world.shape.head_dim;
  for (int head = 0; head < world.shape.kv_heads; ++head) {
    const PageHeadView view = page_head(world.shape, page, 0, head);
    for (int i = 0; i < d; ++i) {
      values.push_back(read_element(world.shape.type, view.k, key_index(d, slot, i), view.k_scale, slot));
      values.push_back(
          read_element(world.shape.type, view.v, static_cast<size_t>(slot) * d + i, view.v_scale, slot));
    }
  }
  return values;
}

TEST_P(DeviceAttendOfType, WritesPagesAsTheReferenceDoes) {
  RH_REQUIRE_GPU();
  for (unsigned seed = 200; seed < 215; ++seed) {
    Random random(seed);
    World world = random_world(random, GetParam());
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, describe(world)));
    DeviceRun run{run_rows};
    run.read_pages = true;
    const DeviceResult device = run_device(world, run);
    run_reference(world);  // writes the same slots on the host
    for (const auto& [page, bytes] : device.pages) {
      for (const RowWrite& write : world.plan.writes) {
        if (write.page != page) continue;
        const std::span<const std::byte> host(page->data, world.shape.block_bytes());
        EXPECT_LE(largest_difference(values_of(world, bytes, write.slot), values_of(world, host, write.slot)),
                  GetParam() == KvType::kF32 ? 1e-5f : 5 * tolerance(GetParam()));
      }
    }
    if (HasFailure()) return;
  }
}

TEST(DeviceAttend, RowsThatSeeNothingGiveZeros) {
  RH_REQUIRE_GPU();
  Random random(1);
  World world;
  world.shape = {1, 2, 64, KvType::kF16};
  world.layer.heads = 4;
  world.layer.rope.dimensions = 64;
  SequencePlan sequence;
  sequence.references = {{world.add_page(random, 0, kPageTokens), 6}};
  sequence.row_count = 1;
  world.plan.sequences.push_back(sequence);
  world.plan.positions = {5};
  world.plan.writes.resize(1);
  world.fill_tensors(random);
  for (const AttendKernel& kernel :
       {AttendKernel(run_rows), run_stream(1), run_stream(3), run_ring(1), run_ring(3)}) {
    const DeviceResult result = run_device(world, {kernel});
    EXPECT_EQ(result.out, std::vector<float>(world.q.size()));
    for (const float lse : result.lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
  }
}

// A question over long passages: many pages in a frame, more queries than a block takes at once.
TEST(DeviceAttend, ManyPagesOfAFrameAreReadAndSummedWhole) {
  RH_REQUIRE_GPU();
  constexpr int kRows = 40;
  for (const int head_dim : {64, 128}) {
    Random random(static_cast<unsigned>(head_dim));
    World world;
    world.shape = {1, 2, head_dim, KvType::kF16};
    world.layer.heads = 14;
    world.layer.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    world.layer.rope.dimensions = head_dim;
    SequencePlan sequence;
    int position = 0;
    for (const int pages : {11, 12}) {
      const int shift = position;
      for (int i = 0; i < pages; ++i, position += kPageTokens) {
        sequence.references.push_back({world.add_page(random, position - shift, kPageTokens), shift});
      }
    }
    sequence.row_count = kRows;
    world.plan.sequences.push_back(sequence);
    for (int row = 0; row < kRows; ++row) world.plan.positions.push_back(position + row);
    world.plan.writes.resize(kRows);
    world.fill_tensors(random);
    const int group = world.layer.heads / world.shape.kv_heads;
    for (const auto& [kernel, tile_rows] : {std::pair{run_stream(4), stream_tile_rows(group)},
                                            std::pair{run_ring(0), ring_tile_rows(head_dim, group)},
                                            std::pair{run_ring(5), ring_tile_rows(head_dim, group)}}) {
      DeviceRun run{kernel, tile_rows};
      run.mass = true;
      compare(world, run, matrix_tolerance(KvType::kF16));
      // Every row's heads spread a probability of one each.
      const std::vector<double> mass = run_device(world, run).mass_per_token.front();
      EXPECT_NEAR(std::accumulate(mass.begin(), mass.end(), 0.0), kRows * world.layer.heads,
                  0.01 * kRows * world.layer.heads);
      const std::vector<double> expected = run_reference(world).mass_per_token.front();
      for (size_t i = 0; i < mass.size(); ++i)
        ASSERT_NEAR(mass[i], expected[i], 0.02 * expected[i] + 1e-3) << i;
    }
  }
}

// How far a slot's mass may be from the reference's, relative to itself: what rounded queries make of scores
// of order 1.
double mass_tolerance(KvType type) {
  return type == KvType::kF32 ? 1e-4 : type == KvType::kBF16 ? 2e-2 : 4e-3;
}

// Frames of so many pages each, the last page of every other one partly filled.
struct FramesCase {
  int head_dim;
  int group;
  int rows;  // of each sequence
  int sequences;
  std::vector<int> frames;
};

World world_of_frames(const FramesCase& c, KvType type) {
  Random random(static_cast<unsigned>(c.head_dim + c.group + c.rows));
  World world;
  world.shape = {1, 2, c.head_dim, type};
  world.layer.heads = 2 * c.group;
  world.layer.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  world.layer.rope.dimensions = c.head_dim;
  for (int s = 0; s < c.sequences; ++s) {
    SequencePlan sequence;
    int position = 0;
    for (size_t f = 0; f < c.frames.size(); ++f) {
      const int shift = position;
      for (int i = 0; i < c.frames[f]; ++i) {
        const int count = f % 2 == 1 && i + 1 == c.frames[f] ? 41 : kPageTokens;
        sequence.references.push_back({world.add_page(random, position - shift, count), shift});
        position += count;
      }
    }
    sequence.row_begin = world.rows();
    sequence.row_count = c.rows;
    for (int row = 0; row < c.rows; ++row) world.plan.positions.push_back(position + row);
    world.plan.writes.resize(world.plan.positions.size());
    world.plan.sequences.push_back(std::move(sequence));
  }
  world.fill_tensors(random);
  return world;
}

// attend_ring takes pages of one frame two at a time where heads are wide: frames of every length, splits
// that cut them anywhere.
TEST_P(DeviceAttendOfType, RingReadsFramesOfOddLengths) {
  RH_REQUIRE_GPU();
  if (!can_attend_ring({1, 1, 64, GetParam()}, 1)) GTEST_SKIP() << "pages of this type are read by rows";
  const FramesCase cases[] = {{128, 6, 50, 1, {1, 2, 3, 1, 5, 4}},
                              {128, 7, 25, 2, {1, 1, 1}},
                              {128, 1, 130, 1, {2, 7}},
                              {128, 3, 1, 2, {3}},
                              {64, 7, 60, 2, {1, 4, 3}},
                              {64, 3, 70, 1, {1, 1, 6}}};
  for (const FramesCase& c : cases) {
    for (const int splits : {0, 1, 2, 5}) {
      World world = world_of_frames(c, GetParam());
      SCOPED_TRACE(fmt::format("{}, {} frames, {} splits", describe(world), c.frames.size(), splits));
      compare(world, {run_ring(splits), ring_tile_rows(c.head_dim, c.group)}, matrix_tolerance(GetParam()));
      if (HasFailure()) return;
    }
  }
}

TEST_P(DeviceAttendOfType, MassOfFramesEqualsTheReferenceSlotBySlot) {
  RH_REQUIRE_GPU();
  const FramesCase cases[] = {
      {64, 7, 80, 1, {1, 7, 8, 9}}, {64, 1, 200, 2, {40, 1, 8}}, {64, 3, 5, 3, {9, 2, 3}},
      {64, 6, 1, 4, {8, 8, 1}},     {128, 7, 19, 1, {9, 8, 7}},  {128, 3, 90, 2, {1, 5}},
      {128, 6, 1, 3, {40}},         {128, 1, 200, 1, {4, 3, 2}}, {64, 7, 37, 2, {6, 5, 4, 3, 2, 1}},
  };
  for (const FramesCase& c : cases) {
    World world = world_of_frames(c, GetParam());
    SCOPED_TRACE(fmt::format("{}, {} frames", describe(world), c.frames.size()));
    ASSERT_TRUE(validate(world.plan, world.shape).ok());
    DeviceRun run{run_rows};
    run.mass = true;
    const auto mass = run_device(world, run).mass_per_token;
    const auto expected = run_reference(world).mass_per_token;
    ASSERT_EQ(mass.size(), expected.size());
    for (size_t s = 0; s < mass.size(); ++s) {
      ASSERT_EQ(mass[s].size(), expected[s].size());
      for (size_t i = 0; i < mass[s].size(); ++i) {
        ASSERT_NEAR(mass[s][i], expected[s][i], mass_tolerance(GetParam()) * expected[s][i] + 1e-6)
            << "slot " << i << " of sequence " << s;
      }
    }
    // No order of blocks changes a bit of it.
    EXPECT_EQ(run_device(world, run).mass_per_token, mass);
  }
}

TEST(DeviceGemm, MultipliesBiasesAndAdds) {
  RH_REQUIRE_GPU();
  auto made = Gemm::make();
  ASSERT_TRUE(made.ok()) << made.error().message;
  Random random(9);
  for (const Element element : {Element::kBF16, Element::kF32}) {
    for (const int rows : {1, 3, 64, 517}) {
      const int m = 24 * 8;
      const int k = 112;
      auto exact = [&](int count) {  // small integers: exact in bf16, and so are their sums in float32
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = static_cast<float>(uniform(random, -8, 8));
        return values;
      };
      const std::vector<float> weight = exact(m * k);
      const std::vector<float> x = exact(rows * k);
      const std::vector<float> bias = exact(m);
      const std::vector<float> residual = exact(rows * m);
      const auto upload = [&](const std::vector<float>& values, Element as) {
        DeviceBuffer buffer;
        EXPECT_TRUE(buffer.allocate(values.size() * element_bytes(as), "a factor").ok());
        if (as == Element::kF32) {
          EXPECT_TRUE(buffer.upload(std::as_bytes(std::span(values))).ok());
        } else {
          std::vector<uint16_t> narrow;
          for (const float value : values) narrow.push_back(f32_to_bf16(value));
          EXPECT_TRUE(buffer.upload(std::as_bytes(std::span(narrow))).ok());
        }
        return buffer;
      };
      const DeviceBuffer w = upload(weight, element);
      const DeviceBuffer in = upload(x, element);
      const DeviceBuffer b = upload(bias, Element::kF32);
      const DeviceBuffer r = upload(residual, Element::kF32);
      const DeviceBuffer out = upload(std::vector<float>(residual.size(), NAN), Element::kF32);
      GemmCall call{{w.as<void>(), element}, {in.as<void>(), element}, {out.as<void>(), Element::kF32}};
      call.bias = b.as<float>();
      call.residual = r.as<float>();
      call.m = m;
      call.k = k;
      call.rows = rows;
      const Status status = (*made)->run(call, nullptr);
      ASSERT_TRUE(status.ok()) << status.error().message;
      std::vector<float> got(residual.size());
      ASSERT_EQ(cudaMemcpy(got.data(), out.as<void>(), got.size() * 4, cudaMemcpyDeviceToHost), cudaSuccess);
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < m; ++i) {
          float sum = bias[i] + residual[row * m + i];
          for (int j = 0; j < k; ++j) sum += weight[i * k + j] * x[row * k + j];
          ASSERT_EQ(got[row * m + i], sum) << rows << " rows, row " << row << " column " << i;
        }
      }
    }
  }
}

std::vector<float> random_values(Random& random, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(uniform(random, -2000, 2000)) / 1000;
  return values;
}

// Values on the GPU as `as`; they are rounded in place to what that holds.
DeviceBuffer on_device(std::vector<float>& values, Element as) {
  DeviceBuffer buffer;
  EXPECT_TRUE(buffer.allocate(values.size() * element_bytes(as), "values").ok());
  std::vector<uint16_t> narrow;
  for (float& value : values) {
    if (as == Element::kF32) break;
    narrow.push_back(f32_to_bf16(value));
    value = bf16_to_f32(narrow.back());
  }
  const auto bytes = as == Element::kF32 ? std::as_bytes(std::span(std::as_const(values)))
                                         : std::as_bytes(std::span(std::as_const(narrow)));
  EXPECT_TRUE(buffer.upload(bytes).ok());
  return buffer;
}

std::vector<float> from_device(const DeviceBuffer& buffer, size_t count, Element element) {
  std::vector<float> values(count);
  std::vector<uint16_t> narrow(count);
  void* to = element == Element::kF32 ? static_cast<void*>(values.data()) : narrow.data();
  EXPECT_EQ(cudaMemcpy(to, buffer.as<void>(), count * element_bytes(element), cudaMemcpyDeviceToHost),
            cudaSuccess);
  for (size_t i = 0; i < count && element != Element::kF32; ++i) values[i] = bf16_to_f32(narrow[i]);
  return values;
}

TEST(CudaElementwise, NormsRowsOfAnyWidthAndStride) {
  RH_REQUIRE_GPU();
  Random random(21);
  constexpr int kRows = 5;
  for (const int width : {64, 576, 896, 1535, 1536, 9000}) {
    for (const Element element : {Element::kF32, Element::kBF16}) {
      const int stride = width + 12;
      std::vector<float> x = random_values(random, static_cast<size_t>(kRows) * stride);
      std::vector<float> gain = random_values(random, static_cast<size_t>(width));
      std::vector<float> nothing(static_cast<size_t>(kRows) * width, NAN);
      const DeviceBuffer in = on_device(x, Element::kF32);
      const DeviceBuffer gains = on_device(gain, Element::kF32);
      const DeviceBuffer out = on_device(nothing, element);
      rms_norm({kRows, width}, {width, in.as<float>(), stride, gains.as<float>(), 1e-5f},
               {out.as<void>(), element}, nullptr);
      const std::vector<float> got = from_device(out, nothing.size(), element);
      for (int row = 0; row < kRows; ++row) {
        double squares = 0;
        for (int i = 0; i < width; ++i) squares += std::pow(x[row * stride + i], 2);
        const double factor = 1.0 / std::sqrt(squares / width + 1e-5);
        for (int i = 0; i < width; ++i) {
          ASSERT_NEAR(got[row * width + i], x[row * stride + i] * factor * gain[i],
                      element == Element::kF32 ? 1e-5 : 2e-2)
              << width << " row " << row << " feature " << i;
        }
      }
    }
  }
}

TEST(CudaElementwise, GatesRowsOfAnyWidth) {
  RH_REQUIRE_GPU();
  Random random(22);
  constexpr int kRows = 5;
  for (const int width : {1, 31, 1536, 4864}) {
    for (const Element element : {Element::kF32, Element::kBF16}) {
      for (const bool gelu : {false, true}) {
        std::vector<float> both = random_values(random, static_cast<size_t>(kRows) * 2 * width);
        std::vector<float> nothing(static_cast<size_t>(kRows) * width, NAN);
        const DeviceBuffer in = on_device(both, element);
        const DeviceBuffer out = on_device(nothing, element);
        const size_t half = static_cast<size_t>(width) * element_bytes(element);
        gate({kRows, width}, {{in.as<void>(), element}, {in.at<void>(half), element}, 2 * width, gelu},
             {out.as<void>(), element}, nullptr);
        const std::vector<float> got = from_device(out, nothing.size(), element);
        for (int row = 0; row < kRows; ++row) {
          for (int i = 0; i < width; ++i) {
            const double x = both[row * 2 * width + i];
            const double cube = 0.7978845608 * x * (1 + 0.044715 * x * x);
            const double activated = gelu ? 0.5 * x * (1 + std::tanh(cube)) : x / (1 + std::exp(-x));
            ASSERT_NEAR(got[row * width + i], activated * both[row * 2 * width + width + i],
                        element == Element::kF32 ? 1e-5 : 2e-2)
                << width << " row " << row << " feature " << i;
          }
        }
      }
    }
  }
}

TEST(CudaScores, LogSoftmaxAtATargetIsThatOfTheWholeRow) {
  RH_REQUIRE_GPU();
  Random random(5);
  for (const int64_t features : {1, 31, 256, 4097, 151936}) {
    constexpr int kRows = 5;
    std::vector<float> rows(static_cast<size_t>(kRows * features));
    for (float& value : rows) value = static_cast<float>(uniform(random, -3000, 3000)) / 100;
    std::vector<int32_t> targets;
    for (int r = 0; r < kRows; ++r) targets.push_back(static_cast<int32_t>((r * 7919) % features));
    DeviceBuffer in, at, out;
    ASSERT_TRUE(in.reserve(rows.size() * sizeof(float), "rows").ok());
    ASSERT_TRUE(at.reserve(kRows * sizeof(int32_t), "targets").ok());
    ASSERT_TRUE(out.reserve(kRows * sizeof(float), "scores").ok());
    cudaMemcpy(in.as<void>(), rows.data(), rows.size() * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(at.as<void>(), targets.data(), kRows * sizeof(int32_t), cudaMemcpyHostToDevice);
    log_softmax_at({kRows, features}, in.as<const float>(), at.as<const int32_t>(), out.as<float>(), nullptr);
    float scores[kRows];
    ASSERT_EQ(cudaMemcpy(scores, out.as<void>(), sizeof scores, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int r = 0; r < kRows; ++r) {
      const float* row = rows.data() + r * features;
      double sum = 0;
      for (int64_t i = 0; i < features; ++i) sum += std::exp(static_cast<double>(row[i]) - 30.0);
      EXPECT_NEAR(scores[r], row[targets[r]] - 30.0 - std::log(sum), 2e-4) << features << " row " << r;
    }
  }
}

TEST(CudaError, WhatLosesTheGpuSaysSoAndWhatToDo) {
  const Status lost = check(cudaErrorLaunchFailure, "evaluating");
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().kind, ErrorKind::kInternal);
  EXPECT_NE(lost.error().message.find("719"), std::string::npos) << lost.error().message;
  EXPECT_NE(lost.error().message.find("start it again"), std::string::npos) << lost.error().message;
  const Status refused = check(cudaErrorInvalidValue, "copying");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.find("start it again"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
