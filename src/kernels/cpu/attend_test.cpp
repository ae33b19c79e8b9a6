#include "kernels/cpu/attend.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cstring>

#include "kernels/attend_test_support.h"

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
  EXPECT_LE(largest_difference(actual.lse, expected.lse), bound * 4);
  if (!run.mass) return;
  const float rows = static_cast<float>(world.rows() * world.layer.heads);
  EXPECT_LE(largest_mass_difference(actual.mass_per_reference, expected.mass_per_reference), bound * rows);
  EXPECT_LE(largest_mass_difference(actual.mass_per_token, expected.mass_per_token), bound * rows);
}

class AttendOfType : public ::testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, AttendOfType, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(AttendOfType, EqualsReferenceOnRandomWorlds) {
  for (unsigned seed = 0; seed < 60; ++seed) {
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

}  // namespace
}  // namespace rhapsode::kernels
