// Catalogs of earlier versions: read as they are, and taken to today's version by the first writer.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include "store/catalog_fixture.h"
#include "store/catalog_schema.h"
#include "support/memory_fixtures.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CatalogMigrationTest : public CatalogTest {
 protected:
  void SetUp() override { ASSERT_TRUE(test::unpack_memory(1, options().folder)); }
  // Asked of the file itself.
  std::string ask(const char* sql) const {
    sqlite3* raw = nullptr;
    std::string answer = "none";
    if (sqlite3_open((options().folder / "catalog.db").c_str(), &raw) == SQLITE_OK) {
      sqlite3_stmt* statement = nullptr;
      sqlite3_prepare_v2(raw, sql, -1, &statement, nullptr);
      if (sqlite3_step(statement) == SQLITE_ROW) {
        answer = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
      }
      sqlite3_finalize(statement);
    }
    sqlite3_close(raw);
    return answer;
  }
};

TEST_F(CatalogMigrationTest, AReaderTakesVersion1AsItIs) {
  const auto catalog = open_reader();
  ASSERT_NE(catalog, nullptr);
  EXPECT_EQ(names(*catalog).size(), 4u);
  EXPECT_EQ(hits(*catalog, "lighthouse"), 1u);
  EXPECT_THAT(*catalog->mentions_of(*catalog->visible_passages({})), IsEmpty());
  EXPECT_THAT(*catalog->contents_without_mentions(1, 100), IsEmpty());
  expect_sound(*catalog);
  EXPECT_EQ(ask("PRAGMA user_version"), "1");
}

TEST_F(CatalogMigrationTest, AWriterTakesVersion1ToTodays) {
  {
    const auto catalog = open();
    ASSERT_NE(catalog, nullptr);
    EXPECT_EQ(ask("PRAGMA user_version"), std::to_string(kCatalogVersion));
    EXPECT_EQ(catalog->contents_without_mentions(1, 100)->size(), 5u) << "of every version of every source";
    EXPECT_EQ(catalog->versions("docs/tariff.md")->size(), 2u);
    EXPECT_EQ(hits(*catalog, "lighthouse"), 1u);
    must_add(*catalog, {"new.md", lines("new", 1)});
    ASSERT_TRUE(catalog->erase(std::vector<std::string>{"docs/tariff.md"}).ok());
    expect_sound(*catalog);
  }
  const auto again = open();
  EXPECT_EQ(names(*again).size(), 4u);
  expect_sound(*again);
}

// The tables that a migration leaves are those of a new catalog.
TEST_F(CatalogMigrationTest, MigratedAndNewCatalogsHaveTheSameTables) {
  constexpr char kTables[] =
      "SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' "
      "ORDER BY "
      "name)";
  { open(); }
  const std::string migrated = ask(kTables);
  std::filesystem::remove_all(options().folder);
  { open(); }
  EXPECT_EQ(ask(kTables), migrated);
}

// A step that fails leaves the version before it, whole.
TEST_F(CatalogMigrationTest, AFailedMigrationChangesNothing) {
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((options().folder / "catalog.db").c_str(), &raw), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(raw, "CREATE TABLE passage_mentions(x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(raw);
  CatalogOptions writing = options();
  EXPECT_FALSE(Catalog::open(writing).ok());
  EXPECT_EQ(ask("PRAGMA user_version"), "1");
  EXPECT_EQ(ask("SELECT count(*) FROM sqlite_schema WHERE name = 'mentions'"), "0");
  EXPECT_EQ(names(*open_reader()).size(), 4u);
}

}  // namespace
}  // namespace rhapsode::store
