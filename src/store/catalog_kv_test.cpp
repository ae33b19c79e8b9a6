// KV extents under their cap: what is removed, and what that gives back on the disk.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>

#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::IsEmpty;

class CatalogKvTest : public CatalogTest {
 protected:
  // Blocks that the files of the folder take, as the file system counts them.
  uint64_t blocks_below(const char* folder) const {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(options().folder / folder)) {
      struct stat info {};
      EXPECT_EQ(::stat(entry.path().c_str(), &info), 0);
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    return bytes;
  }
  static size_t with_kv(const Catalog& catalog) {
    return static_cast<size_t>(catalog.stats("print-1")->passages_with_kv);
  }
};

Document document_with_kv(const std::string& name, size_t kv_bytes) {
  return {name, name + " one\n", "2026-01-01T00:00:00Z", "", {}, "plain-1", "", kv_bytes};
}

TEST_F(CatalogKvTest, TheCapHoldsOnTheDiskAtEveryPut) {
  const auto catalog = open();
  constexpr uint64_t kCap = 256 << 10;
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), std::to_string(kCap)}}));
  for (int i = 0; i < 40; ++i) {
    must_add(*catalog, document_with_kv(fmt::format("s{}", i), 30'000));
    EXPECT_LE(blocks_below("kv"), kCap) << i;
  }
  EXPECT_GE(with_kv(*catalog), 6u);
  EXPECT_EQ(catalog->visible_passages({})->size(), 40u);
  const auto freed = catalog->evict_kv("print-1", kCap / 2);
  ASSERT_TRUE(freed.ok());
  EXPECT_LE(blocks_below("kv"), kCap / 2);
  EXPECT_EQ(catalog->evict_kv("print-1", kCap + 1).error().kind, ErrorKind::kTooLarge);
  const auto huge = add(*catalog, document_with_kv("huge", kCap + 1));
  EXPECT_EQ(huge.error().kind, ErrorKind::kTooLarge);
  EXPECT_GE(with_kv(*catalog), 1u);
  expect_sound(*catalog);
}

// Where a file system has no holes the cap still holds: at worst whole segments go.
TEST_F(CatalogKvTest, TheCapHoldsWithoutHoles) {
  CatalogOptions plain = options();
  plain.holes = false;
  const auto catalog = open_with(plain);
  constexpr uint64_t kCap = 1 << 20;
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), std::to_string(kCap)}}));
  for (int i = 0; i < 120; ++i) {
    must_add(*catalog, document_with_kv(fmt::format("s{}", i), 15'000));
    EXPECT_LE(blocks_below("kv"), kCap) << i;
    if (i % 3 == 0) {
      ASSERT_TRUE(catalog->kv_extent("print-1", catalog->passages_of(fmt::format("s{}", i))->front().id)
                      ->has_value());
    }
  }
  EXPECT_GE(with_kv(*catalog), 10u);
  expect_sound(*catalog);
}

TEST_F(CatalogKvTest, KvOfReplacedVersionsGoesBeforeThatOfCurrentOnes) {
  const auto catalog = open();
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), "1048576"}}));
  must_add(*catalog, document_with_kv("other", 30'000));
  Document changed = document_with_kv("a", 30'000);
  must_add(*catalog, changed);
  const auto old = catalog->passages_of("a")->front().id;
  changed.text = "a two\n";
  changed.added = "2026-02-01T00:00:00Z";
  must_add(*catalog, changed);
  ASSERT_TRUE(catalog->evict_kv("print-1", 1048576 - 90'000).ok());
  EXPECT_FALSE(catalog->kv_extent("print-1", old)->has_value());
  EXPECT_EQ(with_kv(*catalog), 2u);
}

TEST_F(CatalogKvTest, WithoutACapNothingIsRemoved) {
  const auto catalog = open();
  must_add(*catalog, document_with_kv("a", 30'000));
  EXPECT_EQ(*catalog->evict_kv("print-1", uint64_t{1} << 40), 0u);
  EXPECT_EQ(with_kv(*catalog), 1u);
}

TEST_F(CatalogKvTest, OtherFingerprintsGoFirstThenWhatIsSeldomUsed) {
  // Under this cap every extent of 32 KiB has a segment of its own: 36,864 bytes with the header page.
  const auto catalog = open();
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), "262144"}}));
  std::vector<int64_t> ids;
  for (int i = 0; i < 4; ++i) {
    must_add(*catalog, document_with_kv(fmt::format("s{}", i), 30'000));
    ids.push_back(catalog->passages_of(fmt::format("s{}", i))->front().id);
  }
  const auto foreign = pattern("foreign", 30'000);
  expect_ok(catalog->put_kv("print-2", std::vector<KvRecord>{{ids[1], foreign}}));
  EXPECT_EQ(catalog->stats("print-1")->foreign_kv_entries, 1u);
  for (int use = 0; use < 3; ++use) ASSERT_TRUE(catalog->kv_extent("print-1", ids[0])->has_value());
  ASSERT_TRUE(catalog->kv_extent("print-1", ids[2])->has_value());
  const auto present = [&] {
    std::vector<bool> there;
    for (const int64_t id : ids)
      there.push_back(catalog->passages(std::vector<int64_t>{id}, {})->front().has_kv);
    return there;
  };
  expect_ok(catalog->set_settings({{std::string(kFingerprintSetting), "print-1"}}));
  ASSERT_TRUE(catalog->evict_kv("print-1", 262144 - 4 * 36864 - 8192).ok());
  EXPECT_EQ(catalog->stats("print-1")->foreign_kv_entries, 0u);
  EXPECT_EQ(present(), (std::vector<bool>{true, true, true, true}));
  ASSERT_TRUE(catalog->evict_kv("print-1", 262144 - 2 * 36864 - 16384).ok());
  EXPECT_EQ(present(), (std::vector<bool>{true, false, true, false}));
  ASSERT_TRUE(catalog->evict_kv("print-1", 262144 - 1 * 36864 - 8192).ok());
  EXPECT_EQ(present(), (std::vector<bool>{true, false, false, false}));
  ASSERT_TRUE(catalog->evict_kv("print-1", 262144).ok());
  EXPECT_EQ(present(), (std::vector<bool>{false, false, false, false}));
  EXPECT_TRUE(std::filesystem::is_empty(options().folder / "kv"));
}

TEST_F(CatalogKvTest, UsesAreCountedAcrossOpenings) {
  expect_ok(open()->set_settings({{std::string(kKvCapSetting), "262144"}}));
  std::vector<int64_t> ids;
  {
    const auto catalog = open();
    for (const char* name : {"a", "b"}) {
      must_add(*catalog, document_with_kv(name, 30'000));
      ids.push_back(catalog->passages_of(name)->front().id);
    }
    ASSERT_TRUE(catalog->kv_extent("print-1", ids[0])->has_value());
  }
  const auto catalog = open();
  ASSERT_TRUE(catalog->evict_kv("print-1", 262144 - 50'000).ok());
  EXPECT_TRUE(catalog->kv_extent("print-1", ids[0])->has_value());
  EXPECT_FALSE(catalog->kv_extent("print-1", ids[1])->has_value());
}

TEST_F(CatalogKvTest, AReaderOfEvictedKvIsToldThatItIsGoneNotDamaged) {
  const auto catalog = open();
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), "1048576"}}));
  must_add(*catalog, document_with_kv("a", 30'000));
  must_add(*catalog, document_with_kv("b", 30'000));
  const auto reader = open_reader();
  const auto id = reader->passages_of("a")->front().id;
  const auto extent = **reader->kv_extent("print-1", id);
  std::vector<std::byte> bytes(extent.extent.bytes);
  expect_ok(reader->read_kv(extent, bytes));
  ASSERT_TRUE(catalog->evict_kv("print-1", 1048576 - 50'000).ok());
  EXPECT_EQ(reader->read_kv(extent, bytes).error().kind, ErrorKind::kNotFound);
  EXPECT_FALSE(reader->kv_extent("print-1", id)->has_value());
}

TEST_F(CatalogKvTest, ManyAreReadByThreadsAsTheyAreTaken) {
  const auto catalog = open();
  std::vector<KvExtent> extents;
  for (int i = 0; i < 20; ++i) {
    must_add(*catalog, document_with_kv(fmt::format("s{}", i), 3000 + 1000 * static_cast<size_t>(i)));
    const auto id = catalog->passages_of(fmt::format("s{}", i))->front().id;
    extents.push_back(**catalog->kv_extent("print-1", id));
  }
  ++extents[4].extent.checksum;
  std::vector<int> used(extents.size(), 0);
  std::vector<uint64_t> sums(extents.size(), 0);
  std::atomic<size_t> next{0};
  Catalog::KvReading reading;
  reading.threads = 4;
  reading.take = [&] { return 2 * next++; };  // the odd ones are somebody else's
  reading.use = [&](size_t i, RecordStream& stream) -> Status {
    ++used[i];
    EXPECT_EQ(stream.bytes(), extents[i].extent.bytes);
    std::vector<std::byte> bytes;
    for (const size_t piece : {size_t{100}, size_t{0}, stream.bytes() - 100}) {
      RH_TRY(const std::span<const std::byte> read, stream.next(piece));
      bytes.insert(bytes.end(), read.begin(), read.end());
    }
    EXPECT_EQ(stream.next(1).error().kind, ErrorKind::kCorrupt);
    sums[i] = record_checksum(bytes);
    RH_TRY_STATUS(stream.finish());
    return i == 6 ? make_error(ErrorKind::kNoSpace, "no room for it") : Status{};
  };
  const std::vector<Status> done = catalog->read_kv(extents, reading);
  for (size_t i = 0; i < extents.size(); ++i) {
    EXPECT_EQ(used[i], i % 2 == 0 ? 1 : 0) << i;
    if (used[i] != 0 && i != 4) EXPECT_EQ(sums[i], extents[i].extent.checksum) << i;
    EXPECT_EQ(done[i].ok(), i != 4 && i != 6) << i;
  }
  EXPECT_EQ(done[4].error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(done[6].error().kind, ErrorKind::kNoSpace);
  // Just written, and just read.
  const std::vector<bool> cached = catalog->kv_in_page_cache(extents);
  EXPECT_EQ(cached, std::vector<bool>(extents.size(), true));
}

TEST_F(CatalogKvTest, KvMadeLaterReplacesWhatWasThere) {
  const auto catalog = open();
  must_add(*catalog, document_with_kv("a", 6000));
  const auto id = catalog->passages_of("a")->front().id;
  const auto fresh = pattern("fresh", 7000);
  expect_ok(catalog->put_kv("print-1", std::vector<KvRecord>{{id, fresh}}));
  const auto extent = **catalog->kv_extent("print-1", id);
  std::vector<std::byte> bytes(extent.extent.bytes);
  expect_ok(catalog->read_kv(extent, bytes));
  EXPECT_EQ(bytes, fresh);
  EXPECT_EQ(with_kv(*catalog), 1u);
  EXPECT_EQ(catalog->stats("print-1")->stale_bytes, 6000u);
  EXPECT_EQ(catalog->put_kv("print-1", std::vector<KvRecord>{{12345, fresh}}).error().kind,
            ErrorKind::kNotFound);
  expect_sound(*catalog);
}

}  // namespace
}  // namespace rhapsode::store
