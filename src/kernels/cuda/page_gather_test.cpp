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

// Parts that do not divide a slab of pinned memory, and more of them than one holds.
TEST(PinnedPageMemory, PartsOfAnySizeComeBackFromTheGpu) {
  RH_REQUIRE_GPU();
  for (const size_t part_bytes : {size_t{786'432}, size_t{1'835'008}, size_t{100'032}}) {
    constexpr size_t kParts = 200;
    const auto pages = device_page_memory();
    const auto region = pages->reserve(kParts * part_bytes);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const auto staging = pages->new_staging();
    const auto host = staging->reserve(kParts * part_bytes);
    ASSERT_TRUE(host.ok()) << host.error().message;
    EXPECT_FALSE(staging->prepare({*host, part_bytes}).ok()) << "nobody has said yet how large parts are";
    staging->prepare_ahead(part_bytes);
    std::vector<PageMemory::CopyIn> in;
    std::vector<PageMemory::CopyOut> out;
    std::vector<std::byte> back(kParts * part_bytes);
    for (size_t i = 0; i < kParts; ++i) {
      const std::span part(*host + i * part_bytes, part_bytes);
      ASSERT_TRUE(staging->prepare(part).ok());
      for (size_t j = 0; j < part_bytes; ++j)
        part[j] = static_cast<std::byte>((i * 131 + j * 7 + j / 251) & 255);
      in.push_back({*region + i * part_bytes, part});
      out.push_back({*region + i * part_bytes, std::span(back).subspan(i * part_bytes, part_bytes)});
    }
    const Status copied = pages->copy_all_in(in);
    ASSERT_TRUE(copied.ok()) << copied.error().message;
    ASSERT_TRUE(pages->copy_all_out(out).ok());
    EXPECT_EQ(std::memcmp(back.data(), *host, back.size()), 0) << part_bytes;
  }
}

// What a stream waits for before a layer is there when it goes on, in every block; loads that overlap settle
// in order, and one of memory that is not pinned arrives whole.
TEST(DevicePageMemory, BlocksArriveLayerByLayer) {
  RH_REQUIRE_GPU();
  const KvShape shape{12, 2, 64, KvType::kF16};
  const size_t block_bytes = shape.block_bytes();
  constexpr size_t kBlocks = 200;
  const auto arrivals = std::make_shared<PageArrivals>(shape);
  const std::unique_ptr<PageMemory> memory = device_page_memory(0, arrivals);
  const auto region = memory->reserve(kBlocks * block_bytes);
  ASSERT_TRUE(region.ok()) << region.error().message;
  const std::unique_ptr<PageMemory> staging = memory->new_staging();
  const auto staged = staging->reserve(kBlocks * block_bytes);
  ASSERT_TRUE(staged.ok()) << staged.error().message;
  staging->prepare_ahead(block_bytes);
  ASSERT_TRUE(staging->prepare({*staged, kBlocks * block_bytes}).ok());
  std::vector<std::byte> plain(kBlocks * block_bytes);
  std::mt19937_64 random(6);
  for (std::byte* from : {*staged, plain.data()}) {
    for (size_t i = 0; i < plain.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(from + i, &word, 8);
    }
  }
  std::vector<PageMemory::CopyIn> copies;
  for (size_t i = 0; i < kBlocks; ++i) {
    copies.push_back({*region + (i * 37 % kBlocks) * block_bytes, {*staged + i * block_bytes, block_bytes}});
  }
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  PinnedBuffer seen;
  ASSERT_TRUE(seen.reserve(plain.size(), "what a pass reads").ok());
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(cudaMemset(*region, 0xee, plain.size()), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    auto first = memory->begin_copies_in(std::span(copies).first(kBlocks / 2));
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ((*first)->number(), 2u * round + 1);
    std::unique_ptr<PageArrival> second;
    const bool both = round % 2 == 1;
    if (both) second = std::move(memory->begin_copies_in(std::span(copies).subspan(kBlocks / 2)).value());
    const size_t coming = both ? kBlocks : kBlocks / 2;
    EXPECT_TRUE(arrivals->on_the_way(both ? second->number() : (*first)->number()));
    for (int layer = 0; layer < shape.layers; ++layer) {
      ASSERT_TRUE(arrivals->await(layer, stream).ok());
      for (size_t i = 0; i < coming; i += 7) {
        const size_t at = layer * shape.page_bytes();
        ASSERT_EQ(cudaMemcpyAsync(seen.data() + i * block_bytes + at, copies[i].to + at, shape.page_bytes(),
                                  cudaMemcpyDeviceToHost, stream),
                  cudaSuccess);
      }
    }
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    for (size_t i = 0; i < coming; i += 7) {
      ASSERT_EQ(std::memcmp(seen.data() + i * block_bytes, copies[i].from.data(), block_bytes), 0)
          << "round " << round << " block " << i;
    }
    EXPECT_TRUE(!both || second->finish().ok());
    EXPECT_TRUE((*first)->finish().ok());
    EXPECT_FALSE(arrivals->on_the_way(2 * round + 1));
    if (!both) arrivals->next();  // numbers go on by two a round
  }
  for (PageMemory::CopyIn& copy : copies)
    copy.from = {plain.data() + (copy.from.data() - *staged), block_bytes};
  const auto whole = memory->begin_copies_in(copies);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ((*whole)->number(), 0u);
  std::vector<std::byte> arrived(block_bytes);
  for (const PageMemory::CopyIn& copy : copies) {
    ASSERT_TRUE(memory->copy_out(copy.to, arrived).ok());
    ASSERT_EQ(std::memcmp(arrived.data(), copy.from.data(), block_bytes), 0);
  }
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// Parts of a block cover it in order, none of them small, few of them.
TEST(PageArrivals, PartsCoverEveryLayer) {
  for (const KvShape& shape : {KvShape{24, 2, 64, KvType::kF16}, KvShape{28, 2, 128, KvType::kF16},
                               KvShape{30, 3, 64, KvType::kI8}, KvShape{2, 1, 16, KvType::kF32}}) {
    const PageArrivals arrivals(shape);
    size_t end = 0;
    for (const PageArrivals::Part& part : arrivals.parts()) {
      EXPECT_EQ(part.offset, end);
      EXPECT_EQ(part.offset, part.first_layer * shape.page_bytes());
      EXPECT_GT(part.bytes, 0u);
      end += part.bytes;
    }
    EXPECT_EQ(end, shape.block_bytes());
    EXPECT_LE(arrivals.parts().size(), 8u);
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
