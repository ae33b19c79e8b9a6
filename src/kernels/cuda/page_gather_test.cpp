// Pages gathered out of pinned memory arrive as they were, with the sums the host makes. Skipped without a
// GPU.
#include "kernels/cuda/page_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_page_memory.h"
#include "kernels/page_sum.h"

namespace rhapsode::kernels::cuda {
namespace {

#define RH_REQUIRE_GPU() \
  if (!why_no_device().empty()) GTEST_SKIP() << why_no_device()

// Pages in the order of the host and, shuffled, of the device.
struct Trip {
  Trip(size_t page_bytes_in, size_t count, unsigned seed) : page_bytes(page_bytes_in), order(count) {
    std::mt19937 random(seed);
    EXPECT_TRUE(host.reserve(page_bytes * count, "pages").ok());
    for (size_t i = 0; i < page_bytes * count; i += sizeof(uint64_t)) {
      const uint64_t word = uint64_t{random()} << 32 | random();
      std::memcpy(host.data() + i, &word, sizeof word);
    }
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    EXPECT_TRUE(device.allocate(page_bytes * count + 16, "pages").ok());
    EXPECT_EQ(cudaMemset(device.as<void>(), 0xee, device.bytes()), cudaSuccess);
    std::vector<GatherPage> pages(count);
    for (size_t i = 0; i < count; ++i) {
      pages[i] = {host.data() + i * page_bytes, device.at<std::byte>(order[i] * page_bytes)};
    }
    EXPECT_TRUE(list.allocate(count * sizeof(GatherPage), "a list").ok());
    EXPECT_TRUE(list.upload(std::as_bytes(std::span(pages))).ok());
    EXPECT_TRUE(sums.allocate(count * sizeof(uint64_t), "sums").ok());
    EXPECT_EQ(cudaMemset(sums.as<void>(), 0, sums.bytes()), cudaSuccess);
  }

  std::span<const std::byte> page(size_t i) const { return {host.data() + i * page_bytes, page_bytes}; }

  void check(const GatherShape& shape, bool with_sums) {
    GatherCall call{list.as<const GatherPage>(), static_cast<int64_t>(order.size()), page_bytes};
    if (with_sums) call.sums = sums.as<uint64_t>();
    ASSERT_EQ(gather_pages(call, shape, nullptr), cudaSuccess);
    std::vector<std::byte> arrived(device.bytes());
    ASSERT_EQ(cudaMemcpy(arrived.data(), device.as<void>(), arrived.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    std::vector<uint64_t> summed(order.size());
    ASSERT_EQ(cudaMemcpy(summed.data(), sums.as<void>(), sums.bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(std::memcmp(arrived.data() + order[i] * page_bytes, page(i).data(), page_bytes), 0)
          << "page " << i;
      ASSERT_EQ(summed[i], with_sums ? page_sum(page(i)) : 0u) << "page " << i;
    }
    ASSERT_EQ(arrived.back(), std::byte{0xee}) << "written behind the last page";
  }

  size_t page_bytes = 0;
  std::vector<size_t> order;
  PinnedBuffer host;
  DeviceBuffer device, list, sums;
};

TEST(PageGather, BringsScatteredPagesOfAnySizeWithTheirSums) {
  RH_REQUIRE_GPU();
  for (const size_t page_bytes :
       {size_t{16}, size_t{4080}, size_t{4096}, size_t{4112}, size_t{8192}, size_t{49152}, size_t{262144}}) {
    SCOPED_TRACE(page_bytes);
    for (const GatherShape& shape : {GatherShape{1, 32, false}, GatherShape{3, 96, true}, GatherShape{}}) {
      for (const bool with_sums : {false, true}) {
        Trip(page_bytes, 37, static_cast<unsigned>(page_bytes)).check(shape, with_sums);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Blocks out of pinned memory, of which small ones are gathered and large ones copied, and out of memory that
// is not pinned; one in sixteen is summed on both sides.
TEST(DevicePageMemory, CopiesManyBlocksFromAnyMemory) {
  RH_REQUIRE_GPU();
  for (const size_t block_bytes : {size_t{24'576}, size_t{1'000'000}, size_t{1'001}}) {
    SCOPED_TRACE(block_bytes);
    constexpr size_t kBlocks = 40;
    const std::unique_ptr<PageMemory> memory = device_page_memory();
    const auto region = memory->reserve(kBlocks * block_bytes);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const std::unique_ptr<PageMemory> staging = memory->new_staging();
    const auto staged = staging->reserve(kBlocks * block_bytes);
    ASSERT_TRUE(staged.ok()) << staged.error().message;
    staging->prepare_ahead(block_bytes);
    ASSERT_TRUE(staging->prepare({*staged, kBlocks * block_bytes}).ok());
    std::vector<std::byte> plain(kBlocks * block_bytes);
    std::mt19937 random(4);
    std::vector<size_t> order(kBlocks);
    std::iota(order.begin(), order.end(), size_t{0});
    for (std::byte* from : {*staged, plain.data()}) {
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i = 0; i < plain.size(); ++i) from[i] = static_cast<std::byte>(random());
      std::vector<PageMemory::CopyIn> copies;
      for (size_t i = 0; i < kBlocks; ++i) {
        copies.push_back({*region + order[i] * block_bytes, {from + i * block_bytes, block_bytes}});
      }
      const Status copied = memory->copy_all_in(copies);
      ASSERT_TRUE(copied.ok()) << copied.error().message;
      for (const PageMemory::CopyIn& one : copies) {
        std::vector<std::byte> arrived(block_bytes);
        ASSERT_TRUE(memory->copy_out(one.to, arrived).ok());
        ASSERT_EQ(std::memcmp(arrived.data(), one.from.data(), block_bytes), 0);
      }
    }
  }
}

// Few of them, many of one size, and sizes that no kernel copies.
TEST(DevicePageMemory, CopiesManyBlocksWithin) {
  RH_REQUIRE_GPU();
  for (const size_t block_bytes : {size_t{16}, size_t{786'432}, size_t{1'001}}) {
    for (const size_t blocks : {size_t{3}, size_t{40}}) {
      SCOPED_TRACE(block_bytes * blocks);
      const std::unique_ptr<PageMemory> memory = device_page_memory();
      const auto region = memory->reserve(2 * blocks * block_bytes);
      ASSERT_TRUE(region.ok()) << region.error().message;
      std::vector<std::byte> bytes(blocks * block_bytes);
      std::mt19937 random(5);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      ASSERT_TRUE(memory->copy_in(*region, bytes).ok());
      std::vector<size_t> order(blocks);
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      std::vector<PageMemory::CopyWithin> copies;
      for (size_t i = 0; i < blocks; ++i) {
        copies.push_back(
            {*region + i * block_bytes, *region + (blocks + order[i]) * block_bytes, block_bytes});
      }
      const Status copied = memory->copy_all_within(copies);
      ASSERT_TRUE(copied.ok()) << copied.error().message;
      for (size_t i = 0; i < blocks; ++i) {
        std::vector<std::byte> arrived(block_bytes);
        ASSERT_TRUE(memory->copy_out(copies[i].to, arrived).ok());
        ASSERT_EQ(std::memcmp(arrived.data(), bytes.data() + i * block_bytes, block_bytes), 0) << i;
      }
    }
  }
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
