// What a group of back ends does when one of them cannot: with back ends that only exchange.
#include "kernels/sharded_backend.h"

#include <gtest/gtest.h>

#include <atomic>

namespace rhapsode::kernels {
namespace {

constexpr int kExchanges = 5;

// What goes wrong in a pass, on one shard.
struct Plot {
  std::atomic<int> shard{-1};
  std::atomic<int> exchange{-1};  // -1: before the pass begins
  std::atomic<int> runs{0};
  int weight_shard = -1;    // refuses weights
  int counting_shard = -1;  // numbers them differently
  int other_shard = -1;     // rounds otherwise
  int absent_shard = -1;    // is not there at all
};

Error trouble() {
  return make_error(ErrorKind::kNoSpace, "no room on this device");
}

// Adds up the numbers of all shards.
class ExchangingBackend final : public Backend {
 public:
  ExchangingBackend(Plot& plot, const BackendOptions& options) : plot_(plot), options_(options) {}

  Result<Weight> add_weight(const WeightSource&, WeightUse) override {
    if (plot_.weight_shard == number()) return trouble();
    weights_ += plot_.counting_shard == number() ? 2 : 1;
    return Weight{weights_};
  }
  int add_recipe(Recipe) override { return ++recipes_; }
  Result<std::span<const float>> run(const BatchInput& batch, int) override {
    ++plot_.runs;
    const bool unlucky = plot_.shard == number();
    RH_TRY_STATUS(options_.group->agree(unlucky && plot_.exchange < 0 ? Status(trouble()) : Status()));
    result_.assign(1, 0.0f);
    for (int i = 0; i < kExchanges; ++i) {
      if (unlucky && plot_.exchange == i) {
        options_.group->fail(trouble());
        return trouble();
      }
      std::vector<int> all(static_cast<size_t>(options_.group->members()));
      all[static_cast<size_t>(number())] = number() + 1;
      RH_TRY_STATUS(
          options_.group->all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(int), nullptr));
      for (const int one : all) result_[0] += static_cast<float>(one);
    }
    outputs_ = batch.output_rows.size();
    return std::span<const float>(result_).first(outputs_ > 0 ? 1 : 0);
  }
  int fixed_rows() const override { return 0; }
  uint64_t weight_copy_bytes() const override { return 10; }
  std::unique_ptr<PageMemory> new_page_memory() override { return host_page_memory(); }
  std::vector<LayerSpan> layer_spans() const override { return {}; }
  std::string_view numerics() const override { return plot_.other_shard == number() ? "other" : ""; }

 private:
  int number() const { return options_.group->member(); }
  Plot& plot_;
  BackendOptions options_;
  int weights_ = -1;
  int recipes_ = -1;
  size_t outputs_ = 0;
  std::vector<float> result_;
};

class ShardedBackendTest : public ::testing::TestWithParam<int> {
 protected:
  Result<std::unique_ptr<Backend>> make(const BackendOptions& options = {}) {
    const auto maker = [this](const BackendOptions& own) -> Result<std::unique_ptr<Backend>> {
      if (plot_.absent_shard == own.group->member()) return trouble();
      EXPECT_EQ(own.device, own.group->member());
      return std::unique_ptr<Backend>(std::make_unique<ExchangingBackend>(plot_, own));
    };
    return make_sharded_backend(options, host_collective(GetParam()), maker);
  }
  static Result<std::span<const float>> run(Backend& backend) {
    static const std::vector<int32_t> rows = {0};
    static const BatchPlan plan;
    return backend.run({rows, &plan, rows}, 0);
  }
  float expected() const { return kExchanges * static_cast<float>(GetParam() * (GetParam() + 1)) / 2; }

  Plot plot_;
};
INSTANTIATE_TEST_SUITE_P(Shards, ShardedBackendTest, ::testing::Values(1, 2, 3, 4));

TEST_P(ShardedBackendTest, PassesRunOnAllOfThem) {
  auto backend = make();
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->add_recipe({}), 0);
  EXPECT_EQ((*backend)->weight_copy_bytes(), 10u * static_cast<unsigned>(GetParam()));
  EXPECT_EQ((*backend)->new_page_memory()->devices(), GetParam());
  for (int i = 1; i <= 30; ++i) {
    const auto result = run(**backend);
    ASSERT_TRUE(result.ok());
    EXPECT_EQ((*result)[0], expected());
    EXPECT_EQ(plot_.runs, i * GetParam());
  }
}

TEST_P(ShardedBackendTest, APassThatOneCannotDoFailsAndTheNextOneRuns) {
  auto backend = make().value();
  for (int shard = 0; shard < GetParam(); ++shard) {
    for (int exchange = -1; exchange < kExchanges; ++exchange) {
      plot_.shard = shard;
      plot_.exchange = exchange;
      const auto failed = run(*backend);
      ASSERT_FALSE(failed.ok());
      EXPECT_EQ(failed.error().kind, ErrorKind::kNoSpace);
      EXPECT_EQ(failed.error().message, trouble().message);
      plot_.shard = -1;
      const auto next = run(*backend);
      ASSERT_TRUE(next.ok());
      EXPECT_EQ((*next)[0], expected());
    }
  }
}

TEST_P(ShardedBackendTest, ADeviceThatIsNotThereOrFullIsRefused) {
  plot_.absent_shard = GetParam() - 1;
  EXPECT_FALSE(make().ok());
  plot_.absent_shard = -1;
  auto backend = make().value();
  plot_.weight_shard = GetParam() - 1;
  EXPECT_EQ(backend->add_weight({}, WeightUse::kMatrix).error().kind, ErrorKind::kNoSpace);
}

TEST_P(ShardedBackendTest, DevicesThatComputeDifferentlyAreRefused) {
  plot_.other_shard = GetParam() - 1;
  const auto made = make();
  ASSERT_EQ(made.ok(), GetParam() == 1);
  if (!made.ok()) {
    EXPECT_EQ(made.error().kind, ErrorKind::kUnsupported);
  }
}

TEST_P(ShardedBackendTest, WeightsHaveOneNumber) {
  auto backend = make().value();
  EXPECT_EQ(backend->add_weight({}, WeightUse::kMatrix)->id, 0);
  EXPECT_EQ(backend->add_weight({}, WeightUse::kMatrix)->id, 1);
  plot_.counting_shard = GetParam() - 1;
  EXPECT_EQ(backend->add_weight({}, WeightUse::kMatrix).ok(), GetParam() == 1);
}

TEST_P(ShardedBackendTest, WhatNeedsAllPagesInOnePlaceIsRefused) {
  BackendOptions options;
  options.deterministic = true;
  EXPECT_EQ(make(options).error().kind, ErrorKind::kUnsupported);
  auto backend = make().value();
  BatchPlan plan;
  plan.sequences.resize(1);
  plan.sequences[0].read_budget = 256;
  const std::vector<int32_t> rows = {0};
  EXPECT_EQ(backend->run({rows, &plan, rows}, 0).error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(plot_.runs, 0);
  EXPECT_FALSE(backend->mass_per_token(0).ok());
  EXPECT_FALSE(backend->new_code_search(64).ok());
}

}  // namespace
}  // namespace rhapsode::kernels
