#include "kernels/sharded_page_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace rhapsode::kernels {
namespace {

constexpr size_t kBytes = 4096;

std::unique_ptr<PageMemory> of(int devices) {
  std::vector<std::unique_ptr<PageMemory>> memories;
  for (int i = 0; i < devices; ++i) memories.push_back(host_page_memory());
  return sharded_page_memory(std::move(memories));
}

std::vector<std::byte> bytes_from(int first) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i % 97));
  return bytes;
}

TEST(ShardedPageMemory, CopiesReachTheDeviceOfTheirAddress) {
  const auto memory = of(3);
  EXPECT_EQ(memory->devices(), 3);
  const std::vector<std::byte*> regions = memory->reserve_each(2 * kBytes).value();
  ASSERT_EQ(regions.size(), 3u);
  std::vector<std::vector<std::byte>> sources;
  std::vector<PageMemory::CopyIn> in;
  for (int i = 0; i < 3; ++i) sources.push_back(bytes_from(10 * i));
  for (size_t i = 0; i < 3; ++i) in.push_back({regions[2 - i] + kBytes, sources[i]});
  ASSERT_TRUE(memory->copy_all_in(in).ok());
  ASSERT_TRUE(memory->copy_in(regions[1], sources[2]).ok());
  ASSERT_TRUE(memory->copy_within(regions[1], regions[0], kBytes).ok());               // to another device
  ASSERT_TRUE(memory->copy_within(regions[0] + kBytes, regions[0], kBytes / 2).ok());  // on one
  std::vector<std::byte> out(kBytes), other(kBytes);
  const std::array<PageMemory::CopyOut, 2> copies{{{regions[0], out}, {regions[2] + kBytes, other}}};
  ASSERT_TRUE(memory->copy_all_out(copies).ok());
  EXPECT_EQ(other, sources[0]);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + kBytes / 2, sources[2].begin()));
  EXPECT_TRUE(std::equal(out.begin() + kBytes / 2, out.end(), sources[2].begin() + kBytes / 2));
  const std::array<PageMemory::CopyWithin, 3> within{{{regions[2] + kBytes, regions[2], kBytes},
                                                      {regions[2] + kBytes, regions[1], kBytes},
                                                      {regions[0] + kBytes, regions[0], kBytes}}};
  ASSERT_TRUE(memory->copy_all_within(within).ok());
  for (const std::byte* copied : {regions[2], regions[1]}) {
    ASSERT_TRUE(memory->copy_out(copied, out).ok());
    EXPECT_EQ(out, sources[0]);
  }
  ASSERT_TRUE(memory->copy_out(regions[0], out).ok());
  EXPECT_EQ(out, sources[2]);
  ASSERT_TRUE(memory->copy_out(regions[1] + kBytes, out).ok());
  EXPECT_EQ(out, sources[1]);
}

TEST(ShardedPageMemory, RefusesAddressesOfNoDevice) {
  const auto memory = of(2);
  ASSERT_TRUE(memory->reserve_each(kBytes).ok());
  std::vector<std::byte> elsewhere(kBytes);
  EXPECT_FALSE(memory->copy_in(elsewhere.data(), elsewhere).ok());
  EXPECT_FALSE(memory->copy_out(elsewhere.data(), elsewhere).ok());
  const PageMemory::CopyIn one{elsewhere.data(), elsewhere};
  EXPECT_FALSE(memory->copy_all_in({&one, 1}).ok());
  EXPECT_FALSE(memory->reserve(kBytes).ok());
}

}  // namespace
}  // namespace rhapsode::kernels
