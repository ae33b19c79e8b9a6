#include "store/catalog.h"

#include <gmock/gmock.h>
#include <sqlite3.h>

#include <cmath>

#include "store/catalog_fixture.h"

namespace rhapsode::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(CatalogTest, WhatIsAddedIsFoundAgainAlsoAfterReopening) {
  const Document document{
      "docs/a.md", "alpha beta\ngamma beta\n", "2026-01-02T03:04:05Z", "2025-12-24", {"x", "b"}};
  int64_t content = 0;
  {
    const auto catalog = open();
    expect_ok(catalog->set_settings({{std::string(kFingerprintSetting), "print-1"}}));
    content = must_add(*catalog, document);
  }
  const auto catalog = open_reader();
  const auto rows = catalog->sources({});
  ASSERT_EQ(rows->size(), 1u);
  const SourceRow& row = rows->front();
  EXPECT_EQ(row.record.name, "docs/a.md");
  EXPECT_THAT(row.record.tags, ElementsAre("b", "x"));
  EXPECT_EQ(row.record.event_time, "2025-12-24");
  EXPECT_EQ(row.record.added, "2026-01-02T03:04:05Z");
  EXPECT_EQ(row.record.bytes, document.text.size());
  EXPECT_EQ(row.passages, 2);
  EXPECT_EQ(row.tokens, 6u);
  EXPECT_EQ(*catalog->text(content), document.text);
  const auto passages = *catalog->passages_of("docs/a.md");
  ASSERT_EQ(passages.size(), 2u);
  EXPECT_TRUE(passages[1].has_kv);
  EXPECT_EQ(*catalog->passage_text(passages[1].id), "gamma beta\n");
  const std::vector<int64_t> ids = *catalog->visible_passages({});
  EXPECT_THAT(ids, ElementsAre(passages[0].id, passages[1].id));
  const auto codes = *catalog->codes(ids);
  const auto expected = pattern("codes" + passage_seed(document, 1), 96);
  EXPECT_TRUE(std::ranges::equal(codes[1].bytes, expected));
  EXPECT_EQ(codes[1].chunks, 8);
  const auto extent = *catalog->kv_extent("print-1", ids[0]);
  ASSERT_TRUE(extent.has_value());
  std::vector<std::byte> kv(extent->extent.bytes);
  expect_ok(catalog->read_kv(*extent, kv));
  EXPECT_EQ(kv, pattern("kv" + passage_seed(document, 0), 5000));
  EXPECT_FALSE(catalog->kv_extent("print-2", ids[0])->has_value());
  expect_sound(*catalog);
}

TEST_F(CatalogTest, NothingIsVisibleBeforePublishAndEncodingGoesOnWhereItWas) {
  const Document document{"a", lines("alpha", 3)};
  const ContentKey key{*sha256(std::as_bytes(std::span(document.text))), document.recipe};
  const auto codes = pattern("c", 24);
  {
    const auto catalog = open();
    const auto content = *catalog->begin_content(key, record_of(document));
    const std::vector<EncodedPassage> one = {{1, 2, "white-1", codes, "", {}}};
    expect_ok(catalog->put_encoded(content.id, one));
    EXPECT_THAT(*catalog->visible_passages({}), IsEmpty());
    EXPECT_EQ(hits(*catalog, "alpha"), 0u);
    EXPECT_EQ(catalog->token_frequencies(std::vector<int32_t>{token_of("alpha")})->passages, 0);
    SourceRecord source;
    source.name = "a";
    source.added = "2026-01-01T00:00:00Z";
    const Status early = catalog->publish(source, content.id);
    EXPECT_EQ(early.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_THAT(early.error().message, HasSubstr("2 passages"));
    EXPECT_THAT(names(*catalog), IsEmpty());
  }
  const auto catalog = open();
  const auto begun = *catalog->find_content(key);
  ASSERT_TRUE(begun.has_value());
  EXPECT_FALSE(begun->complete);
  EXPECT_THAT(*catalog->encoded_ordinals(begun->id), ElementsAre(1));
  must_add(*catalog, document);
  EXPECT_EQ(hits(*catalog, "alpha"), 3u);
  EXPECT_EQ(catalog->stats("print-1")->contents, 1);
  expect_sound(*catalog);
}

// Case I4: an updated, shorter document leaves no old tail.
TEST_F(CatalogTest, ReplacingTenPassagesByThreeLeavesExactlyThree) {
  const auto catalog = open();
  must_add(*catalog, {"a", lines("old", 10), "2026-01-01T00:00:00Z"});
  EXPECT_EQ(catalog->visible_passages({})->size(), 10u);
  must_add(*catalog, {"a", lines("new", 3), "2026-01-02T00:00:00Z"});
  EXPECT_EQ(catalog->visible_passages({})->size(), 3u);
  EXPECT_EQ(catalog->passages_of("a")->size(), 3u);
  EXPECT_EQ(hits(*catalog, "old"), 0u);
  EXPECT_EQ(hits(*catalog, "new"), 3u);
  const auto versions = *catalog->versions("a");
  ASSERT_EQ(versions.size(), 2u);
  EXPECT_EQ(versions[0].replaced, "2026-01-02T00:00:00Z");
  EXPECT_EQ(versions[1].replaced, "");
  EXPECT_EQ(catalog->sources({})->front().versions, 2);
}

// Case I6: equal files are one content with two sources.
TEST_F(CatalogTest, EqualBytesAreStoredOnceAndCounted) {
  const auto catalog = open();
  const std::string text = lines("same", 2);
  const int64_t first = must_add(*catalog, {"a.txt", text});
  EXPECT_EQ(must_add(*catalog, {"b.txt", text}), first);
  EXPECT_EQ(catalog->stats("print-1")->contents, 1);
  EXPECT_EQ(catalog->stats("print-1")->sources, 2);
  EXPECT_EQ(hits(*catalog, "same"), 2u);
  EXPECT_EQ(catalog->passages(*catalog->visible_passages({}), {})->front().source, "a.txt");
  EXPECT_THAT(catalog->erase(std::vector<std::string>{"a.txt"})->sources, ElementsAre("a.txt"));
  EXPECT_EQ(hits(*catalog, "same"), 2u);
  EXPECT_EQ(catalog->passages(*catalog->visible_passages({}), {})->front().source, "b.txt");
  EXPECT_EQ(*catalog->text(first), text);
  EXPECT_EQ(must_add(*catalog, {"a.txt", text}), first);
  EXPECT_THAT(names(*catalog), ElementsAre("a.txt", "b.txt"));
  expect_sound(*catalog);
}

// Case I15: adding some sources says nothing about others.
TEST_F(CatalogTest, AddingASubsetRemovesNothing) {
  const auto catalog = open();
  must_add(*catalog, {"a", lines("first", 2)});
  must_add(*catalog, {"b", lines("second", 2)});
  must_add(*catalog, {"a", lines("first", 2)});
  EXPECT_THAT(names(*catalog), ElementsAre("a", "b"));
  EXPECT_EQ(hits(*catalog, "second"), 2u);
}

// Case I2: one bad document of a batch fails alone and is named.
TEST_F(CatalogTest, OneBadSourceDoesNotStopTheOthers) {
  const auto catalog = open();
  int stored = 0;
  for (int i = 1; i <= 12; ++i) {
    Document document{fmt::format("doc{}", i), lines(fmt::format("word{}", i), 2)};
    if (i == 7) document.event_time = "the day before yesterday";
    const auto added = add(*catalog, document);
    if (added.ok()) {
      ++stored;
    } else {
      EXPECT_EQ(i, 7);
      EXPECT_THAT(added.error().message, HasSubstr("the day before yesterday"));
    }
  }
  EXPECT_EQ(stored, 11);
  EXPECT_EQ(names(*catalog).size(), 11u);
  expect_sound(*catalog);
}

TEST_F(CatalogTest, PublishingTheSameAgainChangesNothing) {
  const auto catalog = open();
  const Document document{"a", lines("alpha", 2)};
  must_add(*catalog, document);
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((options().folder / "catalog.db").c_str(), &raw), SQLITE_OK);
  const auto data_version = [&] {
    sqlite3_stmt* statement = nullptr;
    sqlite3_prepare_v2(raw, "PRAGMA data_version", -1, &statement, nullptr);
    sqlite3_step(statement);
    const int version = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return version;
  };
  const int before = data_version();
  must_add(*catalog, document);
  EXPECT_EQ(data_version(), before);
  sqlite3_close(raw);
  EXPECT_EQ(catalog->versions("a")->size(), 1u);
}

TEST_F(CatalogTest, TheSameBytesWithNewTagsOrRecipeAreTheSameVersion) {
  const auto catalog = open();
  Document document{"a", lines("alpha", 2)};
  const int64_t first = must_add(*catalog, document);
  document.tags = {"new"};
  must_add(*catalog, document);
  EXPECT_THAT(catalog->sources({})->front().record.tags, ElementsAre("new"));
  document.recipe = "plain-2";
  const int64_t second = must_add(*catalog, document);
  EXPECT_NE(second, first);
  EXPECT_EQ(catalog->versions("a")->size(), 1u);
  EXPECT_EQ(hits(*catalog, "alpha"), 2u);
  EXPECT_EQ(catalog->stats("")->contents, 1);
  EXPECT_EQ(catalog->text(first).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(*catalog->text(second), document.text);
  expect_sound(*catalog);
}

// Case M10: reads at a point in time give exact sets.
TEST_F(CatalogTest, AsOfGivesWhatWasCurrentThen) {
  const auto catalog = open();
  for (int month = 1; month <= 5; ++month) {
    must_add(*catalog, {fmt::format("s{}", month), lines(fmt::format("w{}", month), 1),
                        fmt::format("2026-0{}-10T12:00:00Z", month)});
  }
  for (int month = 1; month <= 5; ++month) {
    std::vector<std::string> expected;
    for (int i = 1; i <= month; ++i) expected.push_back(fmt::format("s{}", i));
    for (const char* when : {"10T12:00:00Z", "10", "25"}) {
      EXPECT_EQ(names(*catalog, {{}, {}, fmt::format("2026-0{}-{}", month, when)}), expected);
    }
    expected.pop_back();
    EXPECT_EQ(names(*catalog, {{}, {}, fmt::format("2026-0{}-10T11:59:59Z", month)}), expected);
  }
  EXPECT_THAT(names(*catalog, {{}, {}, "2025"}), IsEmpty());
  EXPECT_EQ(catalog->sources({{}, {}, "soon"}).error().kind, ErrorKind::kInvalidArgument);
}

TEST_F(CatalogTest, AsOfSeesOldVersionsUntilTheyWereReplacedOrRetired) {
  const auto catalog = open();
  must_add(*catalog, {"a", lines("one", 1), "2026-01-01T00:00:00Z"});
  must_add(*catalog, {"a", lines("two", 2), "2026-02-01T00:00:00Z"});
  const auto passages_at = [&](const std::string& when) {
    return catalog->visible_passages({{}, {}, when})->size();
  };
  EXPECT_EQ(passages_at("2026-01-31"), 1u);
  EXPECT_EQ(passages_at("2026-02-01T00:00:00Z"), 2u);
  EXPECT_EQ(*catalog->retire(std::vector<std::string>{"a", "unknown", "a"}), 1);
  EXPECT_THAT(*catalog->visible_passages({}), IsEmpty());
  EXPECT_EQ(passages_at("2026-02-02"), 2u);
  EXPECT_EQ(passages_at("9999-01-01"), 0u);
  const std::vector<int64_t> then = *catalog->visible_passages({{}, {}, "2026-01-15"});
  EXPECT_EQ(catalog->best_by_terms(std::vector<std::string>{"one"}, then, 5)->size(), 1u);
  EXPECT_EQ(catalog->passages(then, {{}, {}, "2026-01-15"})->front().version, 1);
  EXPECT_THAT(*catalog->passages(then, {}), IsEmpty());
}

TEST_F(CatalogTest, EventTimesDecideWhereThereAreAny) {
  const auto catalog = open();
  must_add(*catalog, {"home", lines("oslo", 1), "2026-05-01T00:00:00Z", "2020"});
  must_add(*catalog, {"home", lines("bergen", 1), "2026-05-02T00:00:00Z", "2022-06"});
  const auto text_at = [&](const std::string& when) -> std::string {
    const auto ids = *catalog->visible_passages({{}, {}, when});
    return ids.size() == 1 ? words_of(*catalog->passage_text(ids[0])).front()
                           : fmt::format("{} passages", ids.size());
  };
  EXPECT_EQ(text_at("2019-12-31"), "0 passages");
  EXPECT_EQ(text_at("2021"), "oslo");
  EXPECT_EQ(text_at("2022-05-31"), "oslo");
  EXPECT_EQ(text_at("2022-06-01"), "bergen");
  EXPECT_EQ(text_at(""), "bergen");
}

TEST_F(CatalogTest, SelectionsFollowFoldersAndTags) {
  const auto catalog = open();
  must_add(*catalog, {"docs/a.md", lines("a", 1), "2026-01-01T00:00:00Z", "", {"red", "big"}});
  must_add(*catalog, {"docs/sub/b.md", lines("b", 1), "2026-01-01T00:00:00Z", "", {"red"}});
  must_add(*catalog, {"docs2/c.md", lines("c", 1), "2026-01-01T00:00:00Z", "", {"redder"}});
  EXPECT_THAT(names(*catalog, {{"docs"}, {}, ""}), ElementsAre("docs/a.md", "docs/sub/b.md"));
  EXPECT_THAT(names(*catalog, {{"docs/sub/"}, {}, ""}), ElementsAre("docs/sub/b.md"));
  EXPECT_THAT(names(*catalog, {{"docs2/c.md", "docs/a.md"}, {}, ""}), ElementsAre("docs/a.md", "docs2/c.md"));
  EXPECT_THAT(names(*catalog, {{"doc", "c.md", "%", "docs/a.md/x"}, {}, ""}), IsEmpty());
  EXPECT_THAT(names(*catalog, {{}, {"red"}, ""}), ElementsAre("docs/a.md", "docs/sub/b.md"));
  EXPECT_THAT(names(*catalog, {{}, {"red", "big"}, ""}), ElementsAre("docs/a.md"));
  EXPECT_THAT(names(*catalog, {{"docs/sub"}, {"big"}, ""}), IsEmpty());
  EXPECT_EQ(catalog->visible_passages({{"docs"}, {"red"}, ""})->size(), 2u);
}

TEST_F(CatalogTest, ScoresAreBm25OverAllPassages) {
  const auto catalog = open();
  const std::string text = "cat dog cat\ndog bird\nfish fish fish fish\ncat\nbird owl emu\n";
  must_add(*catalog, {"a", text});
  const auto record = record_of({"a", text});
  double length = 0;
  for (const auto& place : record.passages) length += static_cast<double>(place.terms.size());
  length /= static_cast<double>(record.passages.size());
  const std::vector<std::string> query = {"cat", "bird", "cat", "absent"};
  const auto ids = *catalog->visible_passages({});
  std::vector<double> expected;
  for (const auto& place : record.passages) {
    double score = 0;
    for (const std::string term : {"cat", "bird"}) {
      double holding = 0;
      for (const auto& other : record.passages) holding += std::ranges::count(other.terms, term) > 0 ? 1 : 0;
      const double idf = std::max(1e-6, std::log((5 - holding + 0.5) / (holding + 0.5)));
      const auto frequency = static_cast<double>(std::ranges::count(place.terms, term));
      const double norm = 1.2 * (1 - 0.75 + 0.75 * static_cast<double>(place.terms.size()) / length);
      score += idf * frequency * 2.2 / (frequency + norm);
    }
    expected.push_back(score);
  }
  const auto scores = *catalog->scores_by_terms(query, ids);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_NEAR(scores[i], expected[i], 1e-9) << i;
  const auto best = *catalog->best_by_terms(query, {}, 2);
  ASSERT_EQ(best.size(), 2u);
  std::ranges::sort(expected, std::greater<>());
  EXPECT_NEAR(best[0].score, expected[0], 1e-9);
  EXPECT_NEAR(best[1].score, expected[1], 1e-9);
  // Filters come before the top-k.
  const auto filtered = *catalog->best_by_terms(query, std::vector<int64_t>{ids[4]}, 1);
  ASSERT_EQ(filtered.size(), 1u);
  EXPECT_EQ(filtered[0].passage, ids[4]);
  EXPECT_EQ(catalog->scores_by_terms(query, std::vector<int64_t>{ids[3], ids[2], ids[3]})->at(1), 0.0);
}

// Case I12: terms of any script and any bytes are found, and only they.
TEST_F(CatalogTest, TermsOfAnyKindSurviveTheIndex) {
  const auto catalog = open();
  const std::vector<std::string> odd = {"地図",       "図帳",
                                        "c++",        "c",
                                        "c#",         "2024",
                                        "3.14",       "naïve",
                                        "\"",         "OR",
                                        "or",         "a*",
                                        "a",          "near(x",
                                        "x_y",        "x",
                                        "_78",        std::string("nul\0byte", 8),
                                        "nul",        "\xff\xfe",
                                        "-",          "{",
                                        "terms:",     "한국",
                                        "\U0001F600", std::string(5000, 'q')};
  Document document{"a", lines("filler", 1)};
  ContentRecord record;
  for (size_t i = 0; i < odd.size(); ++i) {
    record.text += "x";
    PassagePlace place;
    place.begin = i;
    place.end = i + 1;
    place.tokens = 1;
    place.terms = {odd[i]};
    record.passages.push_back(place);
  }
  const auto content =
      *catalog->begin_content({*sha256(std::as_bytes(std::span(record.text))), "odd"}, record);
  expect_ok(encode_all(*catalog, document, content));
  SourceRecord source;
  source.name = "odd";
  source.added = "2026-01-01T00:00:00Z";
  expect_ok(catalog->publish(source, content.id));
  for (size_t i = 0; i < odd.size(); ++i) {
    const auto found = catalog->best_by_terms(std::vector<std::string>{odd[i]}, {}, 10);
    ASSERT_TRUE(found.ok()) << i << ": " << found.error().message;
    ASSERT_EQ(found->size(), 1u) << i;
    EXPECT_EQ(found->front().passage, content.passages[i]) << i;
    EXPECT_GT(found->front().score, 0.0);
  }
  EXPECT_EQ(catalog->best_by_terms(odd, {}, 100)->size(), odd.size());
  EXPECT_THAT(*catalog->best_by_terms(std::vector<std::string>{"", ""}, {}, 10), IsEmpty());
  std::vector<std::string> many;
  for (int i = 0; i < 3000; ++i) many.push_back(fmt::format("unknown{}", i));
  many.push_back("naïve");
  EXPECT_EQ(catalog->best_by_terms(many, {}, 10)->size(), 1u);
  EXPECT_THAT(catalog->erase(std::vector<std::string>{"odd"})->sources, ElementsAre("odd"));
  expect_sound(*catalog);
}

TEST_F(CatalogTest, TokenFrequenciesFollowContents) {
  const auto catalog = open();
  must_add(*catalog, {"a", "cat dog\ncat owl\n"});
  must_add(*catalog, {"b", "cat emu\n"});
  const std::vector<int32_t> tokens = {token_of("cat"), token_of("owl"), token_of("absent")};
  auto frequencies = *catalog->token_frequencies(tokens);
  EXPECT_EQ(frequencies.passages, 3);
  EXPECT_THAT(frequencies.counts, ElementsAre(3, 1, 0));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"a"}).ok());
  frequencies = *catalog->token_frequencies(tokens);
  EXPECT_EQ(frequencies.passages, 1);
  EXPECT_THAT(frequencies.counts, ElementsAre(1, 0, 0));
}

TEST_F(CatalogTest, CodesOfManyPassagesComeInTheOrderAskedFor) {
  const auto catalog = open();
  const Document document{"a", lines("alpha", 400)};
  must_add(*catalog, {"a", document.text, "2026-01-01T00:00:00Z", "", {}, "plain-1", "", 100});
  auto ids = *catalog->visible_passages({});
  std::ranges::reverse(ids);
  ids.push_back(999999);
  ids.push_back(ids[0]);
  const auto codes = *catalog->codes(ids);
  EXPECT_TRUE(std::ranges::equal(codes[0].bytes, pattern("codes" + passage_seed(document, 399), 96)));
  EXPECT_TRUE(std::ranges::equal(codes[399].bytes, pattern("codes" + passage_seed(document, 0), 96)));
  EXPECT_TRUE(codes[400].bytes.empty());
  EXPECT_EQ(codes[401].bytes.data(), codes[0].bytes.data());
}

TEST_F(CatalogTest, SegmentsAreSealedAndViewsSurviveGrowth) {
  CatalogOptions small = options();
  small.segment_bytes = 16 << 10;
  const auto catalog = open_with(small);
  const auto reader = open_reader();
  Document first{"s0", lines("w0", 2)};
  must_add(*catalog, first);
  const auto ids = *reader->visible_passages({});
  const auto codes = *reader->codes(ids);
  for (int i = 1; i < 20; ++i) must_add(*catalog, {fmt::format("s{}", i), lines(fmt::format("w{}", i), 2)});
  const auto more = *reader->codes(*reader->visible_passages({}));
  EXPECT_EQ(more.size(), 40u);
  EXPECT_TRUE(std::ranges::equal(codes[0].bytes, pattern("codes" + passage_seed(first, 0), 96)));
  EXPECT_FALSE(more.back().bytes.empty());
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(small.folder / "kv"), {}), 5);
  expect_sound(*catalog);
  expect_sound(*reader);
}

TEST_F(CatalogTest, DroppedEncodingsComeBackWhenTheyAreMadeAgain) {
  const auto catalog = open();
  Document document{"a", lines("alpha", 2)};
  const int64_t content = must_add(*catalog, document);
  expect_ok(catalog->drop_encodings());
  EXPECT_EQ(catalog->stats("print-1")->kv_bytes, 0u);
  EXPECT_EQ(catalog->stats("print-1")->code_bytes, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(options().folder / "kv"));
  EXPECT_EQ(hits(*catalog, "alpha"), 2u);
  EXPECT_EQ(*catalog->text(content), document.text);
  document.recipe = "tokenizer-2";
  must_add(*catalog, document);
  EXPECT_EQ(catalog->versions("a")->size(), 1u);
  EXPECT_FALSE(catalog->codes(*catalog->visible_passages({}))->at(1).bytes.empty());
  expect_sound(*catalog);
}

TEST_F(CatalogTest, ChangesInOneCommitAreThereTogetherOrNotAtAll) {
  const auto catalog = open();
  const auto put = [&](const Document& document) -> Status {
    RH_TRY_STATUS(add(*catalog, document));
    return {};
  };
  expect_ok(put({"before", "alpha one\n"}));
  expect_ok(catalog->in_one_commit([&]() -> Status {
    RH_TRY_STATUS(put({"first", "beta two\n"}));
    return put({"second", "gamma three\n"});
  }));
  EXPECT_EQ(names(*catalog).size(), 3u);
  // The second part fails; and once more with nobody who says so.
  const Status told = catalog->in_one_commit([&]() -> Status {
    RH_TRY_STATUS(put({"third", "third is here\n"}));
    return catalog->put_encoded(99, {});
  });
  EXPECT_EQ(told.error().kind, ErrorKind::kNotFound);
  const Status silent = catalog->in_one_commit([&]() -> Status {
    RH_TRY_STATUS(put({"fifth", "delta four\n"}));
    ContentRecord record;
    record.text = "delta four\n";
    const ContentKey key{*sha256(std::as_bytes(std::span(std::string_view("delta")))), "r"};
    EXPECT_TRUE(catalog->begin_content(key, record).ok());
    record.passages.emplace_back().end = 5;
    EXPECT_EQ(catalog->begin_content(key, record).error().kind, ErrorKind::kInvalidArgument);
    return {};
  });
  EXPECT_EQ(silent.error().kind, ErrorKind::kInternal);
  EXPECT_EQ(names(*catalog).size(), 3u);
  expect_sound(*catalog);
  expect_ok(put({"third", "third is here\n"}));
  EXPECT_EQ(hits(*catalog, "third"), 1u);
}

}  // namespace
}  // namespace rhapsode::store
