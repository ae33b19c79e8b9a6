#include "store/page_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "kernels/sharded_page_memory.h"

namespace rhapsode::store {
namespace {

kernels::KvShape small_shape() {
  return {.layers = 2, .kv_heads = 1, .head_dim = 16, .type = kernels::KvType::kF32};
}

TEST(PagePool, RefusesACapBelowOneBlock) {
  auto pool = PagePool::create(small_shape(), small_shape().block_bytes() - 1);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.error().kind, ErrorKind::kTooLarge);
}

TEST(PagePool, CapHoldsAndBlocksComeBack) {
  auto pool = PagePool::create(small_shape(), small_shape().block_bytes() * 3 + 10).value();
  std::vector<PagePin> pins;
  for (int i = 0; i < 3; ++i) pins.push_back(pool->allocate());
  EXPECT_TRUE(pins.back());
  EXPECT_FALSE(pool->allocate());
  EXPECT_EQ(pool->stats().blocks_used, 3u);
  PagePin shared = pins[0].share();
  EXPECT_FALSE(pins[0].exclusive());
  pins.clear();
  EXPECT_EQ(pool->stats().blocks_used, 1u);
  EXPECT_TRUE(shared.exclusive());
  shared.release();
  EXPECT_EQ(pool->stats().blocks_used, 0u);
  EXPECT_TRUE(pool->allocate());
}

TEST(PagePool, CopyKeepsBytesAndPositionsAndIsCounted) {
  auto pool = PagePool::create(small_shape(), small_shape().block_bytes() * 2).value();
  PagePin original = pool->allocate();
  std::memset(original->data, 7, small_shape().block_bytes());
  original->count = 40;
  original->positions[3] = 99;
  PagePin copy = pool->copy(*original.get(), 10);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->count, 10);
  EXPECT_EQ(copy->positions[3], 99);
  EXPECT_NE(copy->data, original->data);
  EXPECT_EQ(std::memcmp(copy->data, original->data, small_shape().block_bytes()), 0);
  EXPECT_EQ(pool->stats().copies, 1u);
  EXPECT_FALSE(pool->copy(*original.get(), 10)) << "the cap also holds for copies";
}

std::unique_ptr<kernels::PageMemory> memories(int count) {
  std::vector<std::unique_ptr<kernels::PageMemory>> all;
  for (int i = 0; i < count; ++i) all.push_back(kernels::host_page_memory());
  return kernels::sharded_page_memory(std::move(all));
}

TEST(PagePool, BlocksLieWhereTheyAreWantedUntilThatIsFull) {
  const size_t block = small_shape().block_bytes();
  EXPECT_FALSE(PagePool::create(small_shape(), block * 2, 0, memories(3)).ok());
  auto pool = PagePool::create(small_shape(), block * 10, 0, memories(3)).value();
  EXPECT_EQ(pool->stats().blocks_total, 9u);
  EXPECT_EQ(pool->stats().cap_bytes, 9 * block);
  std::vector<PagePin> pins;
  for (int i = 0; i < 3; ++i) {
    pins.push_back(pool->allocate(1));
    EXPECT_EQ(pins.back()->device, 1);
  }
  for (const int device : {0, 2, 0, 2}) {
    EXPECT_EQ(pool->emptiest(), device);
    pins.push_back(device == 0 ? pool->allocate() : pool->allocate(1));  // which is full
    EXPECT_EQ(pins.back()->device, device);
  }
  pins.erase(pins.begin(), pins.begin() + 3);
  EXPECT_EQ(pool->emptiest(), 1);
  EXPECT_EQ(pool->stats().blocks_used, 4u);
  while (PagePin pin = pool->allocate(2)) pins.push_back(std::move(pin));
  EXPECT_EQ(pool->stats().blocks_used, 9u);
}

TEST(PagePool, CopiesStayOnTheirDeviceOrGoWhereThereIsRoom) {
  const size_t block = small_shape().block_bytes();
  auto pool = PagePool::create(small_shape(), block * 4, 0, memories(2)).value();
  const PagePin original = pool->allocate(1);
  std::memset(original->data, 9, block);
  std::vector<PagePin> copies;
  for (const int device : {1, 0, 0}) {
    copies.push_back(pool->copy(*original.get(), 5));
    ASSERT_TRUE(copies.back());
    EXPECT_EQ(copies.back()->device, device);
    EXPECT_EQ(std::memcmp(copies.back()->data, original->data, block), 0);
  }
  EXPECT_FALSE(pool->copy(*original.get(), 5));
}

TEST(PagePool, ManyThreadsNeverShareABlockByAccident) {
  auto pool = PagePool::create(small_shape(), small_shape().block_bytes() * 16).value();
  std::vector<std::thread> threads;
  std::atomic<int> clashes{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        PagePin pin = pool->allocate();
        if (!pin) continue;
        std::memset(pin->data, t, 64);
        PagePin other = pin.share();
        for (int b = 0; b < 64; ++b) clashes += pin->data[b] != static_cast<std::byte>(t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(clashes, 0);
  EXPECT_EQ(pool->stats().blocks_used, 0u);
}

}  // namespace
}  // namespace rhapsode::store
