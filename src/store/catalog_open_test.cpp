// Opening: who may read and write a catalog, and what damage does to it.
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>

#include "io/file.h"
#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Case X12: a catalog opened to be read is not written to, by no call and in no file.
TEST_F(CatalogTest, AReadOnlyCatalogRefusesEveryWriteAndChangesNoFile) {
  must_add(*open(), {"a", lines("alpha", 2)});
  const auto snapshot = [&] {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options().folder)) {
      // The index of the log is SQLite's shared memory.
      if (!entry.is_regular_file() || entry.path().extension() == ".db-shm") continue;
      if (entry.path().extension() == ".db-wal" && entry.file_size() == 0) continue;
      files[entry.path().string()] = *read_text_file(entry.path());
    }
    return files;
  };
  const auto before = snapshot();
  {
    const auto catalog = open_reader();
    const Document other{"b", lines("beta", 1)};
    const std::vector<std::string> sources = {"a"};
    SourceRecord source;
    source.name = "b";
    source.added = "2026-01-01T00:00:00Z";
    const ContentKey key{std::string(64, 'a'), "r"};
    const auto kv = pattern("kv", 10);
    const auto ids = *catalog->visible_passages({});
    const std::vector<KvRecord> records = {{ids[0], kv}};
    const std::vector<EncodedPassage> encoded = {{0, 1, "w", kv, "f", kv}};
    const auto kind = [](const auto& result) {
      return result.ok() ? ErrorKind::kInternal : result.error().kind;
    };
    EXPECT_EQ(kind(catalog->set_settings({{"k", "v"}})), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->begin_content(key, record_of(other))), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->put_encoded(1, encoded)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->publish(source, 1)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->retire(sources)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->erase(sources)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->put_kv("print-1", records)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->evict_kv("print-1", 1)), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->quarantine(ids[0])), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->put_mentions(1, {})), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->drop_encodings()), ErrorKind::kPermission);
    EXPECT_EQ(kind(catalog->drop_unfinished()), ErrorKind::kPermission);
    EXPECT_EQ(hits(*catalog, "alpha"), 2u);
    EXPECT_TRUE(catalog->kv_extent("print-1", ids[0])->has_value());
    expect_sound(*catalog);
  }
  EXPECT_EQ(snapshot(), before);
}

TEST_F(CatalogTest, ASecondWriterIsToldAndReadersAreNot) {
  const auto catalog = open();
  const auto second = Catalog::open(options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::kCancelled);
  EXPECT_THAT(second.error().message, HasSubstr("another process is writing"));
  const auto reader = open_reader();
  must_add(*catalog, {"a", lines("alpha", 1)});
  EXPECT_EQ(hits(*reader, "alpha"), 1u);
}

TEST_F(CatalogTest, WhatIsNoCatalogOrOfANewerReleaseIsNamed) {
  CatalogOptions plain = options();
  plain.create = false;
  EXPECT_EQ(Catalog::open(plain).error().kind, ErrorKind::kNotFound);
  { open(); }
  const auto file = options().folder / "catalog.db";
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &raw), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(raw, "PRAGMA user_version = 41", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(raw);
  const auto newer = Catalog::open(plain);
  EXPECT_EQ(newer.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(newer.error().message, HasSubstr("version 41"));
  EXPECT_THAT(newer.error().message, HasSubstr("versions 1 to"));
  std::filesystem::remove_all(options().folder);
  std::filesystem::create_directories(options().folder);
  std::ofstream(file) << std::string(9000, 'x');
  EXPECT_EQ(Catalog::open(plain).error().kind, ErrorKind::kCorrupt);
  std::filesystem::remove(file);
  ASSERT_EQ(sqlite3_open(file.c_str(), &raw), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(raw, "CREATE TABLE t(x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(raw);
  EXPECT_EQ(Catalog::open(plain).error().kind, ErrorKind::kCorrupt);
}

TEST_F(CatalogTest, DamageIsFoundNamedAndKeptApart) {
  const auto catalog = open();
  const Document document{"a", lines("alpha", 3)};
  const int64_t content = must_add(*catalog, document);
  const auto ids = *catalog->visible_passages({});
  const auto flip = [&](const char* folder, uint64_t offset) {
    const auto path = std::filesystem::directory_iterator(options().folder / folder)->path();
    auto file = File::open_write(path);
    std::vector<std::byte> byte(1);
    ASSERT_TRUE(file->read_at(byte, offset).ok());
    byte[0] ^= std::byte{1};
    ASSERT_TRUE(file->write_at(byte, offset).ok());
  };
  flip("routing", kSegmentHeaderBytes + 130);
  flip("kv", kSegmentHeaderBytes + 3);
  const auto codes = *catalog->codes(ids);
  EXPECT_FALSE(codes[0].bytes.empty());
  EXPECT_TRUE(codes[1].bytes.empty());
  const auto extent = **catalog->kv_extent("print-1", ids[0]);
  std::vector<std::byte> kv(extent.extent.bytes);
  EXPECT_EQ(catalog->read_kv(extent, kv).error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(catalog->check()->problems.size(), 2u);
  expect_ok(catalog->quarantine(ids[0]));
  EXPECT_FALSE(catalog->kv_extent("print-1", ids[0])->has_value());
  EXPECT_EQ(catalog->stats("print-1")->quarantined, 2u);
  // What is damaged counts as not encoded, and encoding it again heals it.
  EXPECT_THAT(*catalog->encoded_ordinals(content), ElementsAre(0, 2));
  expect_ok(encode_all(*catalog, document, {content, true, "", ids}));
  EXPECT_FALSE(catalog->codes(ids)->at(1).bytes.empty());
  expect_sound(*catalog);
  const auto text = std::filesystem::recursive_directory_iterator(options().folder / "texts");
  for (const auto& entry : text) {
    if (entry.is_regular_file()) std::ofstream(entry.path()) << "damaged";
  }
  EXPECT_EQ(catalog->text(content).error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(catalog->check()->problems.size(), 1u);
}

// Bytes of the catalog's file are hostile: whatever is flipped, calls return.
TEST_F(CatalogTest, ADamagedDatabaseIsAnErrorNeverACrash) {
  {
    const auto catalog = open();
    for (int i = 0; i < 20; ++i) must_add(*catalog, {fmt::format("s{}", i), lines(fmt::format("w{}", i), 5)});
  }
  const auto file = options().folder / "catalog.db";
  const std::string sound = *read_text_file(file);
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::string damaged = sound;
    for (int flips = 0; flips < 1 + round; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    ASSERT_TRUE(replace_file(file, damaged).ok());
    std::filesystem::remove(file.string() + "-wal");
    std::filesystem::remove(file.string() + "-shm");
    CatalogOptions reading = options();
    reading.read_only = true;
    const auto catalog = Catalog::open(reading);
    if (!catalog.ok()) continue;
    const auto ids = (*catalog)->visible_passages({});
    if (ids.ok()) {
      static_cast<void>((*catalog)->passages(*ids, {}).ok());
      static_cast<void>((*catalog)->codes(*ids).ok());
      static_cast<void>((*catalog)->text(ids->empty() ? 1 : ids->front()).ok());
    }
    static_cast<void>((*catalog)->best_by_terms(std::vector<std::string>{"w3", "of"}, {}, 5).ok());
    static_cast<void>((*catalog)->check().ok());
  }
}

// A memory on a medium that cannot be written, read by somebody who may not write.
TEST_F(CatalogTest, AFolderThatCannotBeWrittenIsRead) {
  must_add(*open(), {"a", lines("alpha", 2)});
  for (const char* left_over : {"catalog.db-wal", "catalog.db-shm"})
    std::filesystem::remove(options().folder / left_over);
  // Everybody may read, nobody may write; a privileged user becomes an ordinary one to feel it.
  using std::filesystem::perms;
  const perms everybody_reads{0555};
  std::filesystem::permissions(root_, everybody_reads);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
    std::filesystem::permissions(entry.path(), everybody_reads);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(3);
    CatalogOptions reading = options();
    reading.read_only = true;
    const auto catalog = Catalog::open(reading);
    if (!catalog.ok()) ::_exit(1);
    const auto found = (*catalog)->best_by_terms(std::vector<std::string>{"alpha"}, {}, 5);
    if (!found.ok() || found->size() != 2) ::_exit(2);
    const auto writer = Catalog::open(options());
    ::_exit(writer.ok() || writer.error().kind != ErrorKind::kPermission ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  for (const auto& folder : {root_, options().folder, options().folder / "texts"}) {
    std::filesystem::permissions(folder, perms::owner_all);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
    std::filesystem::permissions(entry.path(), perms::owner_all);
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace rhapsode::store
