// The GPU's merge of shards against the host's, which the CPU's shards are tested with; needs a GPU.
#include "kernels/cuda/shard_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_collective.h"
#include "kernels/element.h"
#include "kernels/lanes.h"
#include "kernels/shard_exchange.h"

namespace rhapsode::kernels::cuda {
namespace {

struct Merged {
  std::vector<float> out;
  std::vector<float> lse;
};

// Parts of some shards, some of them empty for some rows.
std::vector<float> random_parts(std::mt19937& random, int shards, int rows, int heads, int head_dim) {
  std::normal_distribution<float> normal;
  std::vector<float> parts;
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<float> lse;
    for (int i = 0; i < rows * heads; ++i) {
      const bool empty = random() % 4 == 0;
      lse.push_back(empty ? -std::numeric_limits<float>::infinity() : 6 * normal(random));
      for (int d = 0; d < head_dim; ++d) parts.push_back(empty ? 0.0f : normal(random));
    }
    parts.insert(parts.end(), lse.begin(), lse.end());
    parts.resize(static_cast<size_t>(shard + 1) * shard_part_floats(rows, heads, head_dim));
  }
  return parts;
}

Merged merged_on_host(std::span<const float> parts, int shards, int rows, int heads, int head_dim) {
  const size_t floats = shard_part_floats(rows, heads, head_dim);
  const auto ends = host_collective(shards);
  const auto lanes = Lanes::start(shards).value();
  std::vector<Merged> all(static_cast<size_t>(shards));
  const Status done = lanes->run([&](int shard) {
    const std::span<const float> own = parts.subspan(static_cast<size_t>(shard) * floats, floats);
    const auto lse_at = own.begin() + static_cast<std::ptrdiff_t>(rows) * heads * head_dim;
    Merged& merged = all[static_cast<size_t>(shard)];
    merged = {{own.begin(), lse_at}, {lse_at, lse_at + std::ptrdiff_t{rows} * heads}};
    ShardExchange exchange;
    return exchange.run(*ends[static_cast<size_t>(shard)],
                        {rows, heads, head_dim, merged.out.data(), int64_t{heads} * head_dim, merged.lse});
  });
  EXPECT_TRUE(done.ok());
  return all.front();
}

TEST(ShardMerge, GivesWhatTheHostGives) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  std::mt19937 random(3);
  for (const int shards : {1, 2, 3, 8}) {
    for (const Element element : {Element::kF32, Element::kBF16}) {
      constexpr int kRows = 37, kHeads = 9, kDim = 80;  // parts need padding
      const std::vector<float> parts = random_parts(random, shards, kRows, kHeads, kDim);
      const Merged expected = merged_on_host(parts, shards, kRows, kHeads, kDim);
      DeviceBuffer from, out, lse;
      ASSERT_TRUE(from.allocate(parts.size() * sizeof(float), "parts").ok());
      ASSERT_TRUE(from.upload(std::as_bytes(std::span(parts))).ok());
      ASSERT_TRUE(out.allocate(expected.out.size() * sizeof(float), "out").ok());
      ASSERT_TRUE(lse.allocate(expected.lse.size() * sizeof(float), "lse").ok());
      const auto part_floats = static_cast<int64_t>(shard_part_floats(kRows, kHeads, kDim));
      merge_shards({shards,
                    kRows,
                    kHeads,
                    kDim,
                    from.as<const float>(),
                    part_floats,
                    {out.as<void>(), element},
                    lse.as<float>()},
                   nullptr);
      std::vector<float> lses(expected.lse.size());
      ASSERT_EQ(cudaMemcpy(lses.data(), lse.as<void>(), lses.size() * 4, cudaMemcpyDeviceToHost),
                cudaSuccess);
      std::vector<std::byte> bytes(expected.out.size() * element_bytes(element));
      ASSERT_EQ(cudaMemcpy(bytes.data(), out.as<void>(), bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      for (size_t i = 0; i < lses.size(); ++i) {
        if (std::isinf(expected.lse[i])) {
          EXPECT_EQ(lses[i], expected.lse[i]);
        } else {
          EXPECT_NEAR(lses[i], expected.lse[i], 1e-5) << i;
        }
      }
      for (size_t i = 0; i < expected.out.size(); ++i) {
        const bool wide = element == Element::kF32;
        const float got = wide ? reinterpret_cast<const float*>(bytes.data())[i]
                               : bf16_to_f32(reinterpret_cast<const uint16_t*>(bytes.data())[i]);
        ASSERT_NEAR(got, expected.out[i], (wide ? 1e-5 : 1e-2) * std::max(1.0f, std::abs(expected.out[i])))
            << i;
      }
    }
  }
}

// Many exchanges in a row without waiting: nobody may see what another one has written for the next.
void expect_gathered(std::span<const int> gpus, std::vector<std::unique_ptr<Collective>> ends) {
  const auto lanes = Lanes::start(static_cast<int>(gpus.size())).value();
  constexpr int kRounds = 200;
  constexpr size_t kFloats = 4096;
  const Status done = lanes->run([&](int member) -> Status {
    cudaSetDevice(gpus[static_cast<size_t>(member)]);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    DeviceBuffer all, seen;
    const size_t bytes = kFloats * sizeof(float);
    RH_TRY_STATUS(all.allocate(bytes * gpus.size(), "parts"));
    RH_TRY_STATUS(seen.allocate(bytes * gpus.size() * kRounds, "what was seen"));
    RH_TRY_STATUS(ends[static_cast<size_t>(member)]->agree({}));
    for (int round = 0; round < kRounds; ++round) {
      std::byte* own = all.at<std::byte>(bytes * static_cast<size_t>(member));
      EXPECT_EQ(cudaMemsetAsync(own, 16 * member + round % 16, bytes, stream), cudaSuccess);
      RH_TRY_STATUS(ends[static_cast<size_t>(member)]->all_gather(all.as<std::byte>(), bytes, stream));
      EXPECT_EQ(cudaMemcpyAsync(seen.at<void>(bytes * gpus.size() * static_cast<size_t>(round)),
                                all.as<void>(), bytes * gpus.size(), cudaMemcpyDeviceToDevice, stream),
                cudaSuccess);
    }
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<uint8_t> host(bytes * gpus.size() * kRounds);
    EXPECT_EQ(cudaMemcpy(host.data(), seen.as<void>(), host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    size_t wrong = 0;
    for (size_t i = 0; i < host.size(); ++i) {
      const size_t round = i / (bytes * gpus.size());
      const size_t other = i / bytes % gpus.size();
      wrong += host[i] != 16 * other + round % 16;
    }
    EXPECT_EQ(wrong, 0u) << "at member " << member;
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    return {};
  });
  EXPECT_TRUE(done.ok()) << done.error().message;
}

TEST(DeviceCollective, GathersByCopies) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  for (const std::vector<int>& gpus : {std::vector<int>{0}, {0, 0}, {0, 0, 0}, {0, 1}}) {
    if (!check_devices(gpus).ok()) continue;
    auto ends = copying_collective(gpus);
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    expect_gathered(gpus, std::move(*ends));
  }
}

TEST(DeviceCollective, GathersByNccl) {
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device();
  for (std::vector<int> gpus = {0}; check_devices(gpus).ok(); gpus.push_back(static_cast<int>(gpus.size()))) {
    auto ends = nccl_collective(gpus);
    if (!ends.ok() && ends.error().kind == ErrorKind::kUnsupported) GTEST_SKIP() << ends.error().message;
    ASSERT_TRUE(ends.ok()) << ends.error().message;
    expect_gathered(gpus, std::move(*ends));
  }
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
