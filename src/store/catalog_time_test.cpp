// Who sees what, and when: event times, users, supersession, facts, and catalogs of version 3.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <typename T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : T{};
}

class CatalogTimeTest : public CatalogTest {
 protected:
  // As add() of the fixture, with all that a source's record can say.
  static void publish(Catalog& catalog, const Document& document, SourceRecord source) {
    const auto hash = *sha256(std::as_bytes(std::span(document.text)));
    const auto content = catalog.begin_content({hash, document.recipe + source.user}, record_of(document));
    ASSERT_TRUE(content.ok()) << content.error().message;
    if (!content->complete) expect_ok(encode_all(catalog, document, *content));
    source.name = document.name;
    source.kind = "text";
    source.event_time = document.event_time;
    source.added = document.added;
    expect_ok(catalog.publish(source, content->id));
  }
  static SourceRecord of(const std::string& user) {
    SourceRecord record;
    record.user = user;
    return record;
  }
  static SourceRecord superseding(const std::string& reference) {
    SourceRecord record;
    record.supersessions = {{false, reference, true}};
    return record;
  }
  static Selection as_of(const std::string& time) {
    Selection selection;
    selection.as_of = time;
    return selection;
  }
  static Selection as(const std::string& user) {
    Selection selection;
    selection.user = user;
    return selection;
  }
  static FactEvent event(const std::string& key, const std::string& subject, const std::string& value,
                         FactAction action = FactAction::kStated) {
    FactEvent event;
    event.key = key;
    event.subject = subject;
    event.attribute = "home";
    event.value = value;
    event.action = action;
    event.statement = subject + " said so";
    return event;
  }
  static Result<bool> record(Catalog& catalog, const FactEvent& event, const std::string& event_time,
                             const std::string& user = "") {
    SourceRecord source = of(user);
    source.name = (user.empty() ? "" : "@" + user + "/") + "facts/" + event.subject + "/" + event.attribute;
    source.kind = "fact";
    source.event_time = event_time;
    source.added = "2026-05-01T00:00:00Z";
    std::optional<int64_t> content;
    if (event.action != FactAction::kRetracted) {
      const Document document{.name = source.name, .text = event.subject + " lives in " + event.value + "\n"};
      const auto hash = *sha256(std::as_bytes(std::span(document.text)));
      RH_TRY(const ContentInfo info, catalog.begin_content({hash, user + event_time}, record_of(document)));
      if (!info.complete) RH_TRY_STATUS(encode_all(catalog, document, info));
      content = info.id;
    }
    return catalog.record_fact(source, content, event);
  }
  static std::vector<std::string> values(const Catalog& catalog, const Selection& selection = {}) {
    std::vector<std::string> values;
    const auto rows = catalog.facts(selection);
    EXPECT_TRUE(rows.ok()) << (rows.ok() ? "" : rows.error().message);
    for (const FactRow& row : *rows) values.push_back(row.event.value);
    return values;
  }
};

// Case M10: items at five dates; at each date and between them exactly what was true by then, whenever it was
// written down; what has no date is dated by when it was added, never by today.
TEST_F(CatalogTimeTest, M10ItemsAtFiveDatesAreSeenFromTheirEventTimeOn) {
  const auto catalog = open();
  const std::vector<std::string> dates = {"2020-01-10", "2021-02-11", "2022-03-12", "2023-04-13",
                                          "2024-05-14"};
  // Written down all on one day, the latest first.
  for (size_t i = dates.size(); i-- > 0;) {
    must_add(*catalog, {.name = "item" + std::to_string(i),
                        .text = lines("word" + std::to_string(i), 2),
                        .added = "2026-01-01T00:00:00Z",
                        .event_time = dates[i]});
  }
  must_add(*catalog, {.name = "undated", .text = lines("nothing", 1), .added = "2026-02-01T00:00:00Z"});
  const std::vector<std::pair<std::string, size_t>> moments = {
      {"2020-01-09", 0}, {"2020-01-10", 1}, {"2020-06-01", 1}, {"2021-02-10", 1},
      {"2021-02-11", 2}, {"2021-12-31", 2}, {"2022-03-12", 3}, {"2022-09-01", 3},
      {"2023-04-13", 4}, {"2023-12-01", 4}, {"2024-05-14", 5}, {"2025-12-31", 5}};
  for (const auto& [moment, count] : moments) {
    std::vector<std::string> expected;
    for (size_t i = 0; i < count; ++i) expected.push_back("item" + std::to_string(i));
    EXPECT_EQ(names(*catalog, as_of(moment)), expected) << moment;
    EXPECT_EQ(catalog->visible_passages(as_of(moment))->size(), 2 * count) << moment;
  }
  EXPECT_EQ(names(*catalog, as_of("2026-01-31")).size(), 5u);
  EXPECT_EQ(names(*catalog, as_of("2026-02-01")).size(), 6u);
  EXPECT_EQ(names(*catalog).size(), 6u);
}

// Case M11: two users, the same topic: no reading call shows one's sources to the other, and none shows
// anything to nobody in particular.
TEST_F(CatalogTimeTest, M11EachUserSeesTheirOwnAndEverybodysSources) {
  const auto catalog = open();
  must_add(*catalog, {"shared", lines("topic common", 1)});
  publish(*catalog, {.name = "@ana/a", .text = lines("topic anacanary", 2)}, of("ana"));
  publish(*catalog, {.name = "@ben/b", .text = lines("topic bencanary", 3)}, of("ben"));
  // The same bytes of both: two contents, so that neither's headers name the other.
  publish(*catalog, {.name = "@ana/same", .text = "topic same\n"}, of("ana"));
  publish(*catalog, {.name = "@ben/same", .text = "topic same\n"}, of("ben"));
  EXPECT_THAT(names(*catalog, as("ana")), ElementsAre("@ana/a", "@ana/same", "shared"));
  EXPECT_THAT(names(*catalog, as("ben")), ElementsAre("@ben/b", "@ben/same", "shared"));
  EXPECT_THAT(names(*catalog, as("eve")), ElementsAre("shared"));
  const auto everything = *catalog->visible_passages(Selection::stored());
  for (const std::string user : {"ana", "ben", "eve"}) {
    Selection mine = as(user);
    const auto foreign = [&](const std::string& name) {
      return name.starts_with("@") && !name.starts_with("@" + user + "/");
    };
    for (const std::string time : {"", "2026-06-01"}) {
      mine.as_of = time;
      for (const bool history : {false, true}) {
        mine.history = history;
        for (const PassageRow& row : must(catalog->passages(everything, mine))) {
          EXPECT_FALSE(foreign(row.source)) << user << " saw " << row.source;
        }
        const auto allowed = *catalog->visible_passages(mine);
        const auto hits = *catalog->best_by_terms(std::vector<std::string>{"topic"}, allowed, 100);
        EXPECT_EQ(hits.size(), user == "eve" ? 1u : user == "ana" ? 4u : 5u);
        EXPECT_EQ(catalog->versions("@ana/a", mine)->size(), user == "ana" ? 1u : 0u);
        EXPECT_EQ(catalog->passages_of("@ana/a", mine)->size(), user == "ana" ? 2u : 0u);
        mine.sources = {"@ana"};
        EXPECT_EQ(names(*catalog, mine).size(), user == "ana" ? 2u : 0u);
        mine.sources.clear();
        EXPECT_THAT(values(*catalog, mine), IsEmpty());
      }
    }
  }
}

TEST_F(CatalogTimeTest, M11WithoutAUserEveryReadingCallRefuses) {
  const auto catalog = open();
  must_add(*catalog, {"shared", lines("topic common", 1)});
  publish(*catalog, {.name = "@ana/a", .text = lines("topic anacanary", 2)}, of("ana"));
  const auto everything = *catalog->visible_passages(Selection::stored());
  const auto refused = [](const auto& result) {
    return !result.ok() && result.error().kind == ErrorKind::kPermission &&
           result.error().message.find("--user") != std::string::npos;
  };
  for (const Selection& nobody : {Selection{}, as_of("2026-06-01"), [] {
                                    Selection s;
                                    s.history = true;
                                    return s;
                                  }()}) {
    EXPECT_TRUE(refused(catalog->sources(nobody)));
    EXPECT_TRUE(refused(catalog->visible_passages(nobody)));
    EXPECT_TRUE(refused(catalog->passages(everything, nobody)));
    EXPECT_TRUE(refused(catalog->passages_of("@ana/a", nobody)));
    EXPECT_TRUE(refused(catalog->versions("@ana/a", nobody)));
    EXPECT_TRUE(refused(catalog->facts(nobody)));
    EXPECT_TRUE(refused(catalog->supersessions(nobody)));
  }
  EXPECT_TRUE(refused(catalog->best_by_terms(std::vector<std::string>{"topic"}, {}, 10)));
  EXPECT_EQ(names(*catalog, Selection::stored()).size(), 2u);
  // A source never changes hands, and a user's name is no path.
  SourceRecord taken = of("eve");
  taken.name = "@ana/a";
  taken.added = "2026-01-01T00:00:00Z";
  const auto theft = catalog->publish(taken, 1);
  ASSERT_FALSE(theft.ok());
  EXPECT_EQ(theft.error().kind, ErrorKind::kPermission);
  SourceRecord path = of("a/b");
  path.name = "x";
  path.added = "2026-01-01T00:00:00Z";
  EXPECT_FALSE(catalog->publish(path, 1).ok());
}

TEST_F(CatalogTimeTest, ASupersededSourceLeavesTheLiveSetAndComesBack) {
  const auto catalog = open();
  must_add(*catalog, {.name = "plan1", .text = lines("old", 2), .event_time = "2020-01-01"});
  publish(*catalog, {.name = "plan2", .text = lines("new", 1), .event_time = "2023-01-01"},
          superseding("plan1"));
  EXPECT_THAT(names(*catalog), ElementsAre("plan2"));
  EXPECT_EQ(hits(*catalog, "old"), 0u);
  EXPECT_THAT(names(*catalog, as_of("2022-06-01")), ElementsAre("plan1"));
  EXPECT_THAT(names(*catalog, as_of("2023-06-01")), ElementsAre("plan2"));
  Selection ever;
  ever.history = true;
  EXPECT_THAT(names(*catalog, ever), ElementsAre("plan1", "plan2"));
  Selection named;
  named.sources = {"plan1"};
  EXPECT_THAT(names(*catalog, named), ElementsAre("plan1"));
  Selection admitted;
  admitted.admitted = {"plan1"};
  EXPECT_THAT(names(*catalog, admitted), ElementsAre("plan1", "plan2"));
  const auto rows = *catalog->supersessions({});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].older, "plan1");
  EXPECT_EQ(rows[0].newer, "plan2");
  EXPECT_THAT(rows[0].since, HasSubstr("2023-01-01"));
  // A new version of the newer one, added without saying so again, still stands for it.
  must_add(*catalog, {.name = "plan2", .text = lines("newer", 1), .event_time = "2023-01-01"});
  EXPECT_THAT(names(*catalog), ElementsAre("plan2"));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"plan2"}).ok());
  EXPECT_THAT(names(*catalog), ElementsAre("plan1"));
  EXPECT_EQ(hits(*catalog, "old"), 2u);
  EXPECT_THAT(*catalog->supersessions({}), IsEmpty());
  expect_sound(*catalog);
}

TEST_F(CatalogTimeTest, ClaimsFindTheirSourcesByNamePathAndIdentifierInAnyOrder) {
  const auto catalog = open();
  SourceRecord newer;
  newer.supersessions = {{false, "PEP 333"}, {false, "old"}, {false, "../b/x.md"}};
  publish(*catalog, {.name = "a/new.md", .text = lines("n", 1)}, newer);
  for (const SupersessionRow& row : must(catalog->supersessions({})))
    EXPECT_EQ(row.problem, "unknown") << row.older;
  EXPECT_EQ(catalog->supersessions({})->size(), 3u);
  SourceRecord pep;
  pep.identifier = "pep 333";
  publish(*catalog, {.name = "p.rst", .text = lines("p", 1)}, pep);
  must_add(*catalog, {"a/old.txt", lines("o", 1)});
  must_add(*catalog, {"b/x.md", lines("x", 1)});
  must_add(*catalog, {"c/old.txt", lines("c", 1)});
  EXPECT_THAT(names(*catalog), ElementsAre("a/new.md", "c/old.txt"));
  // The older one may say it too; forgetting it leaves the claim open for its return.
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"b/x.md"}).ok());
  must_add(*catalog, {"b/x.md", lines("x again", 1)});
  EXPECT_THAT(names(*catalog), ElementsAre("a/new.md", "c/old.txt"));
  SourceRecord told;
  told.supersessions = {{true, "new.md"}};
  publish(*catalog, {.name = "a/older.md", .text = lines("t", 1)}, told);
  EXPECT_THAT(names(*catalog), ElementsAre("a/new.md", "c/old.txt"));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"a/new.md"}).ok());
  EXPECT_EQ(names(*catalog).size(), 5u);
}

TEST_F(CatalogTimeTest, CyclesHideNothingAndAreReported) {
  const auto catalog = open();
  publish(*catalog, {.name = "a", .text = lines("a", 1)}, superseding("b"));
  publish(*catalog, {.name = "b", .text = lines("b", 1)}, superseding("c"));
  EXPECT_THAT(names(*catalog), ElementsAre("a"));
  publish(*catalog, {.name = "c", .text = lines("c", 1)}, superseding("a"));
  EXPECT_THAT(names(*catalog), ElementsAre("a", "b", "c"));
  for (const SupersessionRow& row : must(catalog->supersessions({}))) EXPECT_EQ(row.problem, "cycle");
  // Itself is nobody.
  publish(*catalog, {.name = "d", .text = lines("d", 1)}, superseding("d"));
  EXPECT_EQ(names(*catalog).size(), 4u);
  // Beside a cycle the rest holds.
  publish(*catalog, {.name = "e", .text = lines("e", 1)}, superseding("d"));
  EXPECT_THAT(names(*catalog), ElementsAre("a", "b", "c", "e"));
}

TEST_F(CatalogTimeTest, AUsersSourceSupersedesForThatUserOnly) {
  const auto catalog = open();
  must_add(*catalog, {"plan", lines("plan", 1)});
  SourceRecord mine = superseding("plan");
  mine.user = "ana";
  publish(*catalog, {.name = "@ana/plan", .text = lines("mine", 1)}, mine);
  EXPECT_THAT(names(*catalog, as("ana")), ElementsAre("@ana/plan"));
  EXPECT_THAT(names(*catalog, as("ben")), ElementsAre("plan"));
  EXPECT_THAT(*catalog->supersessions(as("ben")), IsEmpty());
}

// Case M9: two moves: history has both with their dates, as-of tells each, and the id stays.
TEST_F(CatalogTimeTest, M9ValuesOfAFactAreVersionsOfOneSource) {
  const auto catalog = open();
  ASSERT_TRUE(*record(*catalog, event("k2", "Ana", "Rome"), "2022-03-01"));
  // Told later, true earlier.
  ASSERT_TRUE(*record(*catalog, event("k1", "Ana", "Oslo"), "2019-01-01"));
  ASSERT_TRUE(*record(*catalog, event("k3", "Ana", "Lisbon"), "2024-07-01"));
  EXPECT_THAT(names(*catalog), ElementsAre("facts/Ana/home"));
  EXPECT_THAT(values(*catalog), ElementsAre("Lisbon"));
  EXPECT_THAT(values(*catalog, as_of("2018-06-01")), IsEmpty());
  EXPECT_THAT(values(*catalog, as_of("2020-06-01")), ElementsAre("Oslo"));
  EXPECT_THAT(values(*catalog, as_of("2023-06-01")), ElementsAre("Rome"));
  EXPECT_EQ(hits(*catalog, "Lisbon"), 1u);
  EXPECT_EQ(hits(*catalog, "Oslo"), 0u);
  Selection past;
  past.past_facts = true;
  EXPECT_EQ(catalog->visible_passages(past)->size(), 3u);
  Selection ever;
  ever.history = true;
  const auto rows = *catalog->facts(ever);
  ASSERT_EQ(rows.size(), 3u);
  for (const FactRow& row : rows) EXPECT_EQ(row.source, "facts/Ana/home");
  EXPECT_EQ(rows[0].event_time, "2022-03-01");
  EXPECT_THAT(rows[1].valid_to, HasSubstr("2022-03-01"));
  EXPECT_TRUE(rows[2].current);
  // A message told twice is recorded once.
  EXPECT_FALSE(*record(*catalog, event("k3", "Ana", "Lisbon"), "2024-07-01"));
  EXPECT_EQ(catalog->versions("facts/Ana/home", ever)->size(), 3u);
}

TEST_F(CatalogTimeTest, CorrectionsTakeTheTimeOfWhatTheyCorrectAndRetractionsEndIt) {
  const auto catalog = open();
  ASSERT_TRUE(*record(*catalog, event("k1", "Ana", "Oslo"), "2019-01-01"));
  ASSERT_TRUE(*record(*catalog, event("k2", "Ana", "Rome"), "2022-01-01"));
  ASSERT_TRUE(*record(*catalog, event("k3", "Ana", "Roma", FactAction::kCorrected), "2025-01-01"));
  EXPECT_THAT(values(*catalog, as_of("2022-06-01")), ElementsAre("Roma"));
  EXPECT_THAT(values(*catalog, as_of("2020-06-01")), ElementsAre("Oslo"));
  ASSERT_TRUE(*record(*catalog, event("k4", "Ana", "", FactAction::kRetracted), "2026-01-01"));
  EXPECT_THAT(values(*catalog), IsEmpty());
  EXPECT_THAT(names(*catalog), IsEmpty());
  EXPECT_EQ(hits(*catalog, "Roma"), 0u);
  EXPECT_THAT(values(*catalog, as_of("2026-02-01")), IsEmpty());
  EXPECT_THAT(values(*catalog, as_of("2025-06-01")), ElementsAre("Roma"));
  Selection ever;
  ever.history = true;
  EXPECT_THAT(values(*catalog, ever), ElementsAre("Oslo", "Rome", "Roma", ""));
  // Said anew, it is so again.
  ASSERT_TRUE(*record(*catalog, event("k5", "Ana", "Bari"), "2026-03-01"));
  EXPECT_THAT(values(*catalog), ElementsAre("Bari"));
  EXPECT_FALSE(record(*catalog, event("k6", "Ben", "", FactAction::kRetracted), "2026-01-01").ok());
  // Case M3: erased, no call finds it, also after reopening.
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"facts/Ana/home"}).ok());
  EXPECT_THAT(values(*catalog, ever), IsEmpty());
  expect_sound(*catalog);
}

// Case M5: fifty facts on fifty subjects, five updates: exactly five are superseded.
TEST_F(CatalogTimeTest, M5AnUpdateSupersedesOnlyItsOwnFact) {
  const auto catalog = open();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(
        *record(*catalog, event("k" + std::to_string(i), "S" + std::to_string(i), "Oslo"), "2020-01-01"));
  }
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(*record(*catalog, event("u" + std::to_string(i), "S" + std::to_string(10 * i), "Rome"),
                        "2021-01-01"));
  }
  Selection ever;
  ever.history = true;
  size_t superseded = 0;
  for (const FactRow& row : must(catalog->facts(ever))) superseded += row.current ? 0 : 1;
  EXPECT_EQ(superseded, 5u);
  EXPECT_EQ(catalog->facts({})->size(), 50u);
}

TEST_F(CatalogTimeTest, FactsOfUsersAreTheirOwn) {
  const auto catalog = open();
  ASSERT_TRUE(*record(*catalog, event("k1", "Ana", "Oslo"), "2020-01-01", "ana"));
  ASSERT_TRUE(*record(*catalog, event("k2", "Ana", "Rome"), "2021-01-01", "ben"));
  EXPECT_THAT(values(*catalog, as("ana")), ElementsAre("Oslo"));
  EXPECT_THAT(values(*catalog, as("ben")), ElementsAre("Rome"));
  Selection ever = as("ana");
  ever.history = true;
  EXPECT_THAT(values(*catalog, ever), ElementsAre("Oslo"));
  Selection past = as("ana");
  past.past_facts = true;
  EXPECT_EQ(catalog->visible_passages(past)->size(), 1u);
}

// A catalog as version 3 wrote it.
void make_version_3(const std::filesystem::path& file) {
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &raw), SQLITE_OK);
  for (const char* sql : {"DROP TABLE supersessions", "DROP TABLE identifiers", "DROP TABLE scopes",
                          "DROP TABLE fact_events", "PRAGMA user_version = 3"}) {
    ASSERT_EQ(sqlite3_exec(raw, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  }
  sqlite3_close(raw);
}

TEST_F(CatalogTimeTest, ACatalogOfVersion3IsReadAsItIsAndMigratedByTheNextWriter) {
  must_add(*open(), {"a", lines("alpha", 2)});
  make_version_3(options().folder / "catalog.db");
  {
    const auto reader = open_reader();
    ASSERT_NE(reader, nullptr);
    EXPECT_THAT(names(*reader), ElementsAre("a"));
    EXPECT_EQ(hits(*reader, "alpha"), 2u);
    EXPECT_THAT(*reader->facts({}), IsEmpty());
    EXPECT_THAT(*reader->supersessions({}), IsEmpty());
    // A writer brings it up to date: the reader may not go on without seeing whose sources there are.
    const auto writer = open();
    publish(*writer, {.name = "@ana/b", .text = lines("beta", 1)}, of("ana"));
    const auto stale = reader->sources({});
    ASSERT_FALSE(stale.ok());
    EXPECT_THAT(stale.error().message, HasSubstr("open the memory again"));
  }
  const auto reader = open_reader();
  EXPECT_THAT(names(*reader, as("ana")), ElementsAre("@ana/b", "a"));
  EXPECT_FALSE(reader->sources({}).ok());
  expect_sound(*reader);
}

}  // namespace
}  // namespace rhapsode::store
