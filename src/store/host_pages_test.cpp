#include "store/host_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "store/kv_codec.h"
#include "support/temporary_folder.h"

namespace rhapsode::store {
namespace {

// Memory as a device's: its addresses mean nothing on the host, and only the copies reach its bytes.
class FarMemory final : public kernels::PageMemory {
 public:
  explicit FarMemory(int* copies) : copies_(copies) {}
  Result<std::byte*> reserve(size_t bytes) override {
    bytes_.resize(bytes);
    return base();
  }
  bool host_addressable() const override { return false; }
  uint64_t suggested_bytes() const override { return 1 << 20; }
  Status copy_in(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(at(to), from.data(), from.size());
    return count();
  }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    std::memcpy(to.data(), at(from), to.size());
    return count();
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(at(to), at(from), bytes);
    return count();
  }

 private:
  // Far from anything mapped: following such a pointer ends the test.
  static std::byte* base() { return reinterpret_cast<std::byte*>(uintptr_t{1} << 46); }
  std::byte* at(const std::byte* address) { return bytes_.data() + (address - base()); }
  Status count() {
    ++*copies_;
    return {};
  }

  int* copies_;
  std::vector<std::byte> bytes_;
};

constexpr kernels::KvShape kShape{2, 2, 16, kernels::KvType::kF16};

// An extent of `tokens` tokens with halves counted up.
std::vector<std::byte> some_extent(int tokens) {
  auto pool = PagePool::create(kShape, kShape.block_bytes() * 4).value();
  std::vector<PagePin> pins;
  std::vector<const kernels::Page*> pages;
  for (int begin = 0; begin < tokens; begin += kernels::kPageTokens) {
    pins.push_back(pool->allocate());
    auto* values = reinterpret_cast<uint16_t*>(pins.back()->data);
    for (size_t i = 0; i < kShape.block_bytes() / 2; ++i) values[i] = static_cast<uint16_t>(begin + i % 8192);
    pins.back()->count = std::min(kernels::kPageTokens, tokens - begin);
    pages.push_back(pins.back().get());
  }
  return encode_kv(kShape, kShape.type, pages, tokens).value();
}

TEST(HostPages, ExtentsGoToFarMemoryAndComeBackAsTheyWere) {
  int copies = 0;
  auto pool =
      PagePool::create(kShape, kShape.block_bytes() * 4, 0, std::make_unique<FarMemory>(&copies)).value();
  const std::vector<std::byte> extent = some_extent(100);
  std::vector<PagePin> pins;
  for (int i = 0; i < 2; ++i) pins.push_back(pool->allocate());
  ASSERT_TRUE(decode_pinned_kv(extent, pins, 100).ok());
  EXPECT_EQ(copies, 2);
  EXPECT_EQ(pins[1]->count, 36);
  EXPECT_EQ(pins[1]->positions[5], 69);
  EXPECT_EQ(encode_pinned_kv(pins, kShape.type, 100).value(), extent);
  EXPECT_EQ(copies, 4);

  const PagePin copy = pool->copy(*pins[0].get(), 64);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copies, 5);
  std::vector<PagePin> other;
  other.push_back(copy.share());
  other.push_back(pins[1].share());
  EXPECT_EQ(encode_pinned_kv(other, kShape.type, 100).value(), extent);
}

TEST(HostPages, OnTheHostPagesAreHandedOutThemselves) {
  auto pool = PagePool::create(kShape, kShape.block_bytes() * 2).value();
  std::vector<PagePin> pins;
  pins.push_back(pool->allocate());
  const HostPages reading = HostPages::reading(pins).value();
  EXPECT_EQ(reading.pages()[0], pins[0].get());
  EXPECT_EQ(HostPages::writing(pins).pages()[0], pins[0].get());
}

TEST(HostPages, DamagedExtentsLeaveNoTraceInThePages) {
  int copies = 0;
  auto pool =
      PagePool::create(kShape, kShape.block_bytes() * 2, 0, std::make_unique<FarMemory>(&copies)).value();
  std::vector<std::byte> extent = some_extent(10);
  extent.resize(extent.size() - 1);
  std::vector<PagePin> pins;
  pins.push_back(pool->allocate());
  const Status decoded = decode_pinned_kv(extent, pins, 10);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(copies, 0);
  EXPECT_EQ(pins[0]->count, 0);
}

class HostPagesOfRecords : public test::TemporaryFolder {};

// Its sizes are right, so every page has been filled when the damage shows.
TEST_F(HostPagesOfRecords, DamagedRecordsLeavePagesThatHoldNothing) {
  constexpr int kTokens = 100;
  std::vector<std::byte> extent = some_extent(kTokens);
  auto writer = SegmentWriter::create(folder_ / "kv", SegmentKind::kKv).value();
  const std::span<const std::byte> part = extent;
  Extent sound = writer.append(std::span(&part, 1)).value();
  ASSERT_TRUE(writer.sync().ok());
  Extent damaged = sound;
  damaged.checksum ^= 1;
  const auto reader = SegmentReader::open(folder_ / "kv", SegmentKind::kKv).value();
  auto pool = PagePool::create(kShape, kShape.block_bytes() * 2).value();
  std::vector<PagePin> pins;
  for (int i = 0; i < 2; ++i) pins.push_back(pool->allocate());
  RecordStream stream;
  ASSERT_TRUE(reader.begin(damaged, stream).ok());
  EXPECT_EQ(decode_pinned_kv(stream, pins, kTokens).error().kind, ErrorKind::kCorrupt);
  for (const PagePin& pin : pins) EXPECT_EQ(pin->count, 0);
  ASSERT_TRUE(reader.begin(sound, stream).ok());
  ASSERT_TRUE(decode_pinned_kv(stream, pins, kTokens).ok());
  EXPECT_EQ(encode_pinned_kv(pins, kShape.type, kTokens).value(), extent);
}

TEST(HostPages, NoPagesAreRefused) {
  EXPECT_FALSE(encode_pinned_kv({}, kShape.type, 1).ok());
  EXPECT_FALSE(decode_pinned_kv({}, {}, 1).ok());
}

}  // namespace
}  // namespace rhapsode::store
