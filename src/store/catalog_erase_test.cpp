// Erasing: what is forgotten is found by no call and stands in no file.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <fstream>

#include "io/file.h"
#include "store/catalog_fixture.h"
#include "store/compressed.h"
#include "store/word_lists.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class CatalogEraseTest : public CatalogTest {
 protected:
  // The files of the folder in which the bytes stand; texts are looked at unpacked as well.
  std::vector<std::string> files_with(const std::string& bytes) const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options().folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string content = *read_text_file(entry.path());
      const auto unpacked = decompress(std::as_bytes(std::span(content)), 1 << 30);
      const bool inside = content.find(bytes) != std::string::npos ||
                          (unpacked.ok() && unpacked->find(bytes) != std::string::npos);
      if (inside) found.push_back(entry.path().filename().string());
    }
    return found;
  }
  size_t count_files(const char* folder) const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options().folder / folder)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
  // Everything of a document that must be gone, or must be there.
  struct Canary {
    std::string what;
    std::string bytes;
  };
  static std::vector<Canary> canaries(const Document& document) {
    std::vector<Canary> canaries = {{"text", document.text}, {"name", document.name}};
    const auto record = record_of(document);
    for (size_t i = 0; i < record.passages.size(); ++i) {
      canaries.push_back({"codes", as_text(pattern("codes" + passage_seed(document, i), 96))});
      canaries.push_back(
          {"kv", as_text(pattern("kv" + passage_seed(document, i), document.kv_bytes)).substr(0, 200)});
      canaries.push_back({"tokens", as_text(*pack_tokens(record.passages[i].unique_tokens))});
      canaries.push_back({"mention", record.passages[i].mentions.front().key});
      canaries.push_back({"packed terms", as_text(*pack_terms(encode_terms(record.passages[i].terms)))});
    }
    // A word that shares no beginning with others, so that the index keeps its letters together.
    canaries.push_back({"term", words_of(document.text).front()});
    return canaries;
  }
  void expect_there(const Document& document) const {
    for (const Canary& canary : canaries(document)) {
      EXPECT_THAT(files_with(canary.bytes), testing::Not(IsEmpty()))
          << canary.what << " of " << document.name;
    }
  }
  void expect_gone(const Document& document) const {
    for (const Canary& canary : canaries(document)) {
      EXPECT_THAT(files_with(canary.bytes), IsEmpty()) << canary.what << " of " << document.name;
    }
  }
};

Document secret() {
  return {"people/zyxw-secret.md", "qxzcanary seven wolves at the 7b21 gate\nqxzsecond vault code 1eef\n"};
}

Document other(int i) {
  return {fmt::format("plain{}.md", i), fmt::format("kept{0} first line of {0}\nmore{0} lines follow\n", i)};
}

TEST_F(CatalogEraseTest, NoByteStaysInAnyFile) {
  const auto catalog = open();
  for (int i = 0; i < 5; ++i) must_add(*catalog, other(i));
  must_add(*catalog, secret());
  for (int i = 5; i < 10; ++i) must_add(*catalog, other(i));
  expect_there(secret());
  const size_t texts = count_files("texts");
  const auto erased = catalog->erase(std::vector<std::string>{secret().name});
  ASSERT_TRUE(erased.ok()) << erased.error().message;
  EXPECT_THAT(erased->sources, ElementsAre(secret().name));
  EXPECT_EQ(erased->passages, 2);
  EXPECT_GT(erased->bytes, 2u * 5000u);
  EXPECT_THAT(erased->renamed, IsEmpty());
  expect_gone(secret());
  EXPECT_EQ(count_files("texts"), texts - 1);
  expect_there(other(3));
  expect_there(other(7));
  expect_sound(*catalog);
  const Document kept = other(7);
  const auto ids = *catalog->visible_passages({{kept.name}, {}, ""});
  EXPECT_TRUE(
      std::ranges::equal(catalog->codes(ids)->at(1).bytes, pattern("codes" + passage_seed(kept, 1), 96)));
}

// Case M3: after a deletion no way of reading finds it, also after a restart.
TEST_F(CatalogEraseTest, NoReadingCallFindsWhatWasErased) {
  std::vector<int64_t> ids;
  {
    const auto catalog = open();
    must_add(*catalog, secret());
    must_add(*catalog, other(1));
    ids = *catalog->visible_passages({{secret().name}, {}, ""});
    ASSERT_TRUE(catalog->erase(std::vector<std::string>{secret().name}).ok());
  }
  for (const bool reading : {false, true}) {
    const auto catalog = reading ? open_reader() : open();
    EXPECT_THAT(names(*catalog), ElementsAre(other(1).name));
    EXPECT_THAT(names(*catalog, {{}, {}, "2026-06-01"}), ElementsAre(other(1).name));
    EXPECT_THAT(*catalog->versions(secret().name), IsEmpty());
    EXPECT_THAT(*catalog->passages_of(secret().name), IsEmpty());
    EXPECT_THAT(*catalog->passages(ids, {}), IsEmpty());
    EXPECT_EQ(hits(*catalog, "qxzcanary"), 0u);
    EXPECT_EQ(catalog->best_by_terms(std::vector<std::string>{"qxzcanary"}, ids, 5)->size(), 0u);
    EXPECT_EQ(catalog->passage_text(ids[0]).error().kind, ErrorKind::kNotFound);
    EXPECT_TRUE(catalog->codes(ids)->at(0).bytes.empty());
    EXPECT_FALSE(catalog->kv_extent("print-1", ids[0])->has_value());
    EXPECT_THAT(catalog->token_frequencies(std::vector<int32_t>{token_of("qxzcanary")})->counts,
                ElementsAre(0));
  }
}

TEST_F(CatalogEraseTest, OldVersionsEvictedKvAndUnfinishedContentsGoToo) {
  const auto catalog = open();
  expect_ok(catalog->set_settings({{std::string(kKvCapSetting), "65536"}}));
  Document first = secret();
  Document second = secret();
  second.text = "qxznewer text of the same source\n";
  second.added = "2026-03-01T00:00:00Z";
  must_add(*catalog, other(1));
  must_add(*catalog, first);
  must_add(*catalog, second);
  for (int i = 2; i < 9; ++i) must_add(*catalog, other(i));
  Document unfinished = secret();
  unfinished.name = "never/published.md";
  unfinished.text = "qxzunfinished business\n";
  const ContentKey key{*sha256(std::as_bytes(std::span(unfinished.text))), unfinished.recipe};
  const auto begun = *catalog->begin_content(key, record_of(unfinished));
  expect_ok(encode_all(*catalog, unfinished, begun));
  EXPECT_THAT(files_with(unfinished.text), testing::SizeIs(1));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{secret().name}).ok());
  expect_gone(first);
  expect_gone(second);
  expect_gone(unfinished);
  EXPECT_FALSE(catalog->find_content(key)->has_value());
  expect_sound(*catalog);
}

TEST_F(CatalogEraseTest, UnfinishedContentsCanBeDroppedAlone) {
  const auto catalog = open();
  must_add(*catalog, other(1));
  const Document unfinished = secret();
  const auto begun = *catalog->begin_content({std::string(64, 'b'), "r"}, record_of(unfinished));
  expect_ok(encode_all(*catalog, unfinished, begun));
  EXPECT_EQ(*catalog->drop_unfinished(), 1);
  EXPECT_EQ(*catalog->drop_unfinished(), 0);
  EXPECT_EQ(count_files("texts"), 1u);
  EXPECT_THAT(names(*catalog), ElementsAre(other(1).name));
  expect_sound(*catalog);
}

TEST_F(CatalogEraseTest, WhatAnotherSourceHoldsStays) {
  const auto catalog = open();
  Document copy = secret();
  copy.name = "copy.md";
  must_add(*catalog, secret());
  must_add(*catalog, copy);
  const auto erased = *catalog->erase(std::vector<std::string>{secret().name});
  EXPECT_EQ(erased.passages, 0);
  EXPECT_THAT(files_with(secret().name), IsEmpty());
  EXPECT_EQ(hits(*catalog, "qxzcanary"), 1u);
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{copy.name}).ok());
  expect_gone(copy);
}

TEST_F(CatalogEraseTest, ContentsNamedAfterAnErasedSourceAreRenamed) {
  const auto catalog = open();
  Document named = secret();
  named.named_after = named.name;
  Document copy = named;
  copy.name = "copy.md";
  const int64_t old = must_add(*catalog, named);
  EXPECT_EQ(must_add(*catalog, copy), old);
  const auto erased = *catalog->erase(std::vector<std::string>{named.name});
  ASSERT_EQ(erased.renamed.size(), 1u);
  EXPECT_EQ(erased.renamed[0].content, old);
  EXPECT_EQ(erased.renamed[0].source, "copy.md");
  // Until it is read anew the copy stays readable, and nothing is lost by a crash here.
  EXPECT_EQ(hits(*catalog, "qxzcanary"), 1u);
  copy.named_after = copy.name;
  const int64_t fresh = must_add(*catalog, copy);
  EXPECT_NE(fresh, old);
  EXPECT_EQ(catalog->versions("copy.md")->size(), 1u);
  const auto again = *catalog->erase(std::vector<std::string>{named.name});
  EXPECT_THAT(again.renamed, IsEmpty());
  EXPECT_THAT(files_with(named.name), IsEmpty());
  EXPECT_EQ(hits(*catalog, "qxzcanary"), 1u);
  EXPECT_EQ(catalog->passages_of("copy.md")->front().header, "copy.md");
  expect_sound(*catalog);
}

TEST_F(CatalogEraseTest, OldVersionsKnownOnlyUnderAnErasedNameGoWithIt) {
  const auto catalog = open();
  Document named = secret();
  named.named_after = named.name;
  Document copy = named;
  copy.name = "copy.md";
  must_add(*catalog, named);
  must_add(*catalog, copy);
  Document later = other(1);
  later.name = later.named_after = "copy.md";
  later.added = "2026-02-01T00:00:00Z";
  must_add(*catalog, later);
  const auto erased = *catalog->erase(std::vector<std::string>{named.name});
  EXPECT_THAT(erased.renamed, IsEmpty());
  EXPECT_EQ(erased.passages, 2);
  EXPECT_EQ(catalog->versions("copy.md")->size(), 1u);
  EXPECT_EQ(catalog->passages_of("copy.md")->size(), 2u);
  expect_gone(named);
  expect_sound(*catalog);
}

// Case X5: unknown and repeated names count 0 and 1, and change nothing else.
TEST_F(CatalogEraseTest, ErasingTwiceUnknownOrRepeatedNames) {
  const auto catalog = open();
  must_add(*catalog, other(1));
  must_add(*catalog, other(2));
  const std::string first = other(1).name;
  EXPECT_THAT(catalog->erase(std::vector<std::string>{first, first, "unknown"})->sources, ElementsAre(first));
  EXPECT_THAT(catalog->erase(std::vector<std::string>{first})->sources, IsEmpty());
  EXPECT_THAT(catalog->erase(std::vector<std::string>{})->sources, IsEmpty());
  EXPECT_EQ(catalog->erase(std::vector<std::string>{"unknown"})->passages, 0);
  EXPECT_THAT(names(*catalog), ElementsAre(other(2).name));
  expect_sound(*catalog);
}

// Case X2: after cycles of adding and removing, counts are 0 and no file grows.
TEST_F(CatalogEraseTest, CyclesOfAddingAndErasingLeaveNothing) {
  const auto catalog = open();
  uint64_t catalog_bytes = 0;
  for (int cycle = 0; cycle < 6; ++cycle) {
    std::vector<std::string> all;
    for (int i = 0; i < 8; ++i) {
      must_add(*catalog, other(i));
      all.push_back(other(i).name);
    }
    EXPECT_EQ(catalog->stats("print-1")->passages, 16);
    EXPECT_EQ(catalog->erase(all)->passages, 16);
    const auto stats = *catalog->stats("print-1");
    EXPECT_EQ(stats.sources + stats.versions + stats.contents + stats.passages + stats.passages_with_kv, 0);
    EXPECT_EQ(stats.text_bytes + stats.code_bytes + stats.kv_bytes + stats.stale_bytes, 0u);
    EXPECT_EQ(count_files("texts") + count_files("routing") + count_files("kv"), 0u);
    if (cycle == 0) catalog_bytes = stats.catalog_bytes;
    EXPECT_LE(stats.catalog_bytes, catalog_bytes + 8192) << cycle;
  }
  expect_sound(*catalog);
}

TEST_F(CatalogEraseTest, ALongReaderIsReportedAndTheNextWriterFinishes) {
  auto catalog = open();
  must_add(*catalog, secret());
  must_add(*catalog, other(1));
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((options().folder / "catalog.db").c_str(), &raw), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(raw, "BEGIN; SELECT count(*) FROM passages;", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto erased = catalog->erase(std::vector<std::string>{secret().name});
  ASSERT_FALSE(erased.ok());
  EXPECT_EQ(erased.error().kind, ErrorKind::kCancelled);
  EXPECT_THAT(erased.error().message, HasSubstr("another process still reads"));
  EXPECT_THAT(names(*catalog), ElementsAre(other(1).name));
  EXPECT_THAT(files_with(as_text(pattern("codes" + passage_seed(secret(), 0), 96))), IsEmpty());
  sqlite3_exec(raw, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(raw);
  catalog.reset();
  catalog = open();
  expect_gone(secret());
  expect_sound(*catalog);
}

TEST_F(CatalogEraseTest, DamageInASegmentDoesNotStopErasing) {
  const auto catalog = open();
  must_add(*catalog, secret());
  must_add(*catalog, other(1));
  const auto path = std::filesystem::directory_iterator(options().folder / "kv")->path();
  {
    auto file = File::open_write(path);
    expect_ok(file->write_at(pattern("damage", 10), kSegmentHeaderBytes + 2 * 8192 + 5));
  }
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{secret().name}).ok());
  expect_gone(secret());
  EXPECT_EQ(catalog->stats("print-1")->quarantined, 1u);
  EXPECT_EQ(catalog->stats("print-1")->passages_with_kv, 1);
  expect_sound(*catalog);
}

}  // namespace
}  // namespace rhapsode::store
