// Links over a catalog: of texts, within what is allowed, and of memories that had none.
#include "recall/links.h"

#include <gmock/gmock.h>

#include "store/catalog_fixture.h"
#include "support/memory_fixtures.h"

namespace rhapsode::recall {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LinksTest : public store::CatalogTest {
 protected:
  // A source of one passage with its own title.
  int64_t add(store::Catalog& catalog, const std::string& title, const std::string& text) {
    const store::Document document{title + ".md", text + "\n"};
    store::ContentRecord record = store::record_of(document);
    record.title = title;
    add_mentions(record);
    const std::string seed = title + text;
    const store::ContentKey key{*sha256(std::as_bytes(std::span(seed))), "r"};
    const auto content = catalog.begin_content(key, record);
    EXPECT_TRUE(content.ok());
    expect_ok(store::encode_all(catalog, document, *content));
    store::SourceRecord source;
    source.name = document.name;
    source.title = title;
    source.added = "2026-01-01T00:00:00Z";
    expect_ok(catalog.publish(source, content->id));
    return content->passages.front();
  }
  static LinkGraph around(const store::Catalog& catalog, const std::vector<int64_t>& seeds,
                          const std::vector<int64_t>& allowed, const LinkLimits& limits = {}) {
    auto links = LinkGraph::around(catalog, seeds, allowed, limits);
    EXPECT_TRUE(links.ok());
    return std::move(*links);
  }
  static std::vector<int64_t> linked(const LinkGraph& links, int64_t passage) {
    std::vector<int64_t> ids;
    for (const index::Link& link : links.graph().links_of(passage)) ids.push_back(link.passage);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
};

TEST_F(LinksTest, FollowsNamesAndTitlesStepByStep) {
  const auto catalog = open();
  const int64_t bridge = add(*catalog, "Alder Bridge", "It was drawn by Edda Morvane in 1931.");
  const int64_t edda = add(*catalog, "Edda Morvane", "She was born in Skellig Harbour.");
  const int64_t town = add(*catalog, "Skellig Harbour", "A town of nine hundred people.");
  const int64_t other = add(*catalog, "Quince", "A fruit that is boiled.");
  const auto allowed = *catalog->visible_passages({});
  LinkLimits near;
  near.steps = 1;
  EXPECT_THAT(linked(around(*catalog, {bridge}, allowed, near), edda), ElementsAre(bridge));
  const LinkGraph links = around(*catalog, {bridge}, allowed);
  EXPECT_THAT(linked(links, edda), ElementsAre(bridge, town));
  EXPECT_THAT(linked(links, other), IsEmpty());
  EXPECT_EQ(*catalog->mention_key(*links.shared_mention(bridge, edda)), "edda morvane");
  EXPECT_FALSE(links.shared_mention(bridge, town).has_value());
}

// No link crosses a filter, and what is hidden makes no hub.
TEST_F(LinksTest, StaysWithinWhatIsAllowed) {
  const auto catalog = open();
  const int64_t a = add(*catalog, "First note", "Edda Morvane was here.");
  const int64_t b = add(*catalog, "Second note", "I saw Edda Morvane.");
  std::vector<int64_t> hidden;
  for (int i = 0; i < 9; ++i) {
    hidden.push_back(add(*catalog, fmt::format("Hidden {}", i), fmt::format("Edda Morvane, number {}.", i)));
  }
  EXPECT_THAT(linked(around(*catalog, {a}, *catalog->visible_passages({})), a), IsEmpty()) << "a hub";
  EXPECT_THAT(linked(around(*catalog, {a}, {a, b}), a), ElementsAre(b));
  EXPECT_THAT(linked(around(*catalog, {a}, {b}), b), IsEmpty()) << "the seed itself is not allowed";
  EXPECT_THAT(linked(around(*catalog, {a}, {a}), a), IsEmpty());
}

TEST_F(LinksTest, ACapitalisedWordLinksOnlyToItsTitle) {
  const auto catalog = open();
  const int64_t a = add(*catalog, "Voyages", "We sailed with Calypso that summer.");
  const int64_t b = add(*catalog, "Repairs", "The mast of Calypso was replaced.");
  EXPECT_THAT(linked(around(*catalog, {a}, {a, b}), a), IsEmpty());
  const int64_t ship = add(*catalog, "Calypso", "A research ship.");
  const LinkGraph links = around(*catalog, {a}, {a, b, ship});
  EXPECT_THAT(linked(links, a), ElementsAre(ship));
  EXPECT_THAT(linked(links, ship), ElementsAre(a, b));
  EXPECT_FALSE(links.shared_mention(a, b).has_value());
}

TEST_F(LinksTest, MemoriesOfVersion1GetTheirLinks) {
  ASSERT_TRUE(test::unpack_memory(1, options().folder));
  const auto catalog = open();
  expect_ok(sync_mentions(*catalog));
  EXPECT_THAT(*catalog->contents_without_mentions(kMentionsVersion, 10), IsEmpty());
  const auto id = [&](const char* source) { return catalog->passages_of(source)->front().id; };
  const LinkGraph links =
      around(*catalog, {id("docs/alder-bridge.md")}, *catalog->visible_passages({{}, {"town"}, ""}));
  EXPECT_THAT(linked(links, id("docs/edda-morvane.md")),
              ElementsAre(id("docs/alder-bridge.md"), id("docs/skellig-harbour.md")));
  ASSERT_TRUE(catalog->erase(std::vector<std::string>{"docs/edda-morvane.md"}).ok());
  expect_sound(*catalog);
  expect_ok(sync_mentions(*catalog));
}

}  // namespace
}  // namespace rhapsode::recall
