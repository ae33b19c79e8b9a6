// Mentions: who holds them, how they are counted, and that they go with what held them.
#include <gmock/gmock.h>

#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A document of one passage that mentions the given keys.
int64_t add_mentioning(Catalog& catalog, const std::string& name, const std::vector<MentionKey>& keys,
                       const std::string& added = "2026-01-01T00:00:00Z") {
  Document document{name, name + " of " + added + "\n"};
  document.added = added;
  ContentRecord record = record_of(document);
  record.mentions_version = 1;
  record.passages[0].mentions = keys;
  const ContentKey key{*sha256(std::as_bytes(std::span(document.text))), "r"};
  const auto content = catalog.begin_content(key, record);
  EXPECT_TRUE(content.ok());
  EXPECT_TRUE(encode_all(catalog, document, *content).ok());
  SourceRecord source;
  source.name = name;
  source.added = added;
  EXPECT_TRUE(catalog.publish(source, content->id).ok());
  return content->passages[0];
}

std::vector<std::string> keys_of(const Catalog& catalog, int64_t passage) {
  std::vector<std::string> keys;
  const auto rows = *catalog.mentions_of(std::vector<int64_t>{passage});
  for (const PassageMentionRow& row : rows) {
    keys.push_back(
        fmt::format("{} kind {} of {}", *catalog.mention_key(row.mention), row.kind, row.passages));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::vector<int64_t> sharers(const Catalog& catalog, int64_t passage, int most = 100, int weak = 9) {
  std::vector<int64_t> ids;
  const auto rows = *catalog.sharers_of(std::vector<int64_t>{passage}, most, weak);
  for (const PassageMentionRow& row : rows) ids.push_back(row.passage);
  return ids;
}

TEST_F(CatalogTest, MentionsAreStoredCountedAndFoundFromBothSides) {
  const auto catalog = open();
  const int64_t a = add_mentioning(*catalog, "a", {{"ada", 3}, {"ada", 1}, {"bee", 2}});
  const int64_t b = add_mentioning(*catalog, "b", {{"ada", 0}});
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("ada kind 1 of 2", "bee kind 2 of 1"));
  EXPECT_THAT(keys_of(*catalog, b), ElementsAre("ada kind 0 of 2"));
  EXPECT_THAT(sharers(*catalog, b), ElementsAre(a, b));
  EXPECT_THAT(sharers(*catalog, a), ElementsAre(a, b)) << "nobody else holds bee";
  EXPECT_THAT(sharers(*catalog, b, 1), IsEmpty());
  EXPECT_THAT(sharers(*catalog, a, 100, 1), ElementsAre(a, b)) << "b holds it with kind 0";
  EXPECT_THAT(sharers(*catalog, a, 100, 0), IsEmpty());
  EXPECT_THAT(*catalog->mentions_of({}), IsEmpty());
  EXPECT_EQ(catalog->mention_key(999).error().kind, ErrorKind::kNotFound);
  expect_sound(*catalog);
}

TEST_F(CatalogTest, MentionsOfUnfinishedContentsDoNotCount) {
  const auto catalog = open();
  const int64_t a = add_mentioning(*catalog, "a", {{"ada", 1}});
  ContentRecord record = record_of({"b", "begun only\n"});
  record.passages[0].mentions = {{"ada", 1}, {"cee", 1}};
  ASSERT_TRUE(catalog->begin_content({std::string(64, 'c'), "r"}, record).ok());
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("ada kind 1 of 1"));
  expect_sound(*catalog);
  EXPECT_EQ(*catalog->drop_unfinished(), 1);
  EXPECT_THAT(sharers(*catalog, a), IsEmpty());
  expect_sound(*catalog);
}

TEST_F(CatalogTest, ErasedSourcesTakeTheirMentionsAlong) {
  const auto catalog = open();
  const int64_t a = add_mentioning(*catalog, "a", {{"ada", 1}, {"bee", 1}});
  const int64_t old = add_mentioning(*catalog, "b", {{"ada", 1}, {"cee", 1}});
  const int64_t b = add_mentioning(*catalog, "b", {{"ada", 1}}, "2026-02-01T00:00:00Z");
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("ada kind 1 of 3", "bee kind 1 of 1"));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"b"}).ok());
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("ada kind 1 of 1", "bee kind 1 of 1"));
  EXPECT_THAT(*catalog->mentions_of(std::vector<int64_t>{old, b}), IsEmpty());
  expect_sound(*catalog);
}

TEST_F(CatalogTest, MentionsAreReplacedWhenTheExtractorChanges) {
  const auto catalog = open();
  const int64_t a = add_mentioning(*catalog, "a", {{"ada", 1}});
  add_mentioning(*catalog, "b", {{"ada", 1}});
  EXPECT_THAT(*catalog->contents_without_mentions(1, 10), IsEmpty());
  EXPECT_EQ(catalog->contents_without_mentions(2, 1)->size(), 1u);
  const auto outdated = *catalog->contents_without_mentions(2, 10);
  ASSERT_EQ(outdated.size(), 2u);
  EXPECT_THAT(outdated[0].passages, ElementsAre(a));
  std::vector<ContentMentions> found = {{outdated[0].content, {{{"bee", 2}}}}};
  expect_ok(catalog->put_mentions(2, found));
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("bee kind 2 of 1"));
  EXPECT_EQ(catalog->contents_without_mentions(2, 10)->size(), 1u);
  found[0].by_ordinal.clear();
  EXPECT_EQ(catalog->put_mentions(2, found).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_THAT(keys_of(*catalog, a), ElementsAre("bee kind 2 of 1")) << "nothing half done";
  expect_sound(*catalog);
}

}  // namespace
}  // namespace rhapsode::store
