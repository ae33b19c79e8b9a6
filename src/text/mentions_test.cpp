#include "text/mentions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rhapsode::text {
namespace {

std::vector<std::string> of_kind(std::string_view text, MentionKind kind, std::string_view title = "") {
  std::vector<std::string> keys;
  for (const Mention& mention : find_mentions(text, title)) {
    if (mention.kind == kind) keys.push_back(mention.key);
  }
  return keys;
}

using Keys = std::vector<std::string>;

TEST(Mentions, NamesAreRunsOfCapitalisedWordsAndTheirParts) {
  EXPECT_EQ(of_kind("He met Ada Lovelace King in London.", MentionKind::kName),
            (Keys{"ada lovelace", "ada lovelace king", "lovelace king"}));
  EXPECT_EQ(of_kind("the University of Leeds and others", MentionKind::kName), Keys{"university of leeds"});
  EXPECT_EQ(of_kind("Lord of the Rings", MentionKind::kName), Keys{"lord of the rings"});
  EXPECT_EQ(of_kind("in Paris, France, and Rome. Vienna", MentionKind::kName), Keys{});
  EXPECT_EQ(of_kind("George W. Bush", MentionKind::kName), (Keys{"george w", "george w bush", "w bush"}));
  EXPECT_EQ(of_kind("The Beatles", MentionKind::kName), Keys{});
  EXPECT_EQ(of_kind("Jean-Luc O'Neill wrote", MentionKind::kName), Keys{"jean-luc o'neill"});
}

TEST(Mentions, PossessivesEndNames) {
  EXPECT_EQ(of_kind("Ada Byron's Analytical Engine", MentionKind::kName),
            (Keys{"ada byron", "analytical engine"}));
  EXPECT_EQ(of_kind("Ada Byron\xE2\x80\x99s Analytical Engine", MentionKind::kName),
            (Keys{"ada byron", "analytical engine"}));
}

TEST(Mentions, SingleWordsAreOfAKindOfTheirOwn) {
  EXPECT_EQ(of_kind("However, Inception was shown in Rome and Ulm.", MentionKind::kWord),
            (Keys{"inception", "rome"}));
}

TEST(Mentions, OtherScriptsHaveCapitalsToo) {
  EXPECT_EQ(of_kind("\xD0\x9B\xD0\xB5\xD0\xB2 \xD0\xA2\xD0\xBE\xD0\xBB\xD1\x81\xD1\x82\xD0\xBE\xD0\xB9",
                    MentionKind::kName),
            Keys{"\xD0\xBB\xD0\xB5\xD0\xB2 \xD1\x82\xD0\xBE\xD0\xBB\xD1\x81\xD1\x82\xD0\xBE\xD0\xB9"});
  EXPECT_EQ(of_kind("\xC3\x89mile Zola", MentionKind::kName), Keys{"\xC3\xA9mile zola"});
}

TEST(Mentions, TitlesAlsoWithoutWhatTellsThemApart) {
  EXPECT_EQ(of_kind("", MentionKind::kTitle, "Inception (2010 film)"), Keys{"inception"});
  EXPECT_EQ(of_kind("", MentionKind::kTitle, "Springfield, Illinois"),
            (Keys{"springfield", "springfield illinois"}));
  EXPECT_EQ(of_kind("", MentionKind::kTitle, "Re: Fwd: Budget for May"), Keys{"budget for may"});
  EXPECT_EQ(find_mentions("", "Budget for May"), find_mentions("", "RE: Budget for May"));
  EXPECT_EQ(of_kind("", MentionKind::kTitle, "Go"), Keys{});
  EXPECT_EQ(of_kind("Ada Byron was born", MentionKind::kTitle, "Ada Byron"), Keys{"ada byron"});
}

TEST(Mentions, SymbolsOfCode) {
  EXPECT_EQ(of_kind("call parse_header() or HttpServer, std::vector and a->b; not _x, e.g. or iPad.",
                    MentionKind::kSymbol),
            (Keys{"HttpServer", "parse_header", "std::vector"}));
}

TEST(Mentions, AddressesWithoutSchemeFragmentAndFullStop) {
  EXPECT_EQ(of_kind("See https://www.Example.org/a/b#part. Or (http://example.org/a/b/), www.x.de!",
                    MentionKind::kAddress),
            (Keys{"example.org/a/b", "x.de"}));
  EXPECT_EQ(of_kind("http is a protocol, https too", MentionKind::kAddress), Keys{});
}

TEST(Mentions, KeysAreSortedAndEachIsThereOnce) {
  const auto mentions = find_mentions("Ada Byron met Ada Byron. Ada Byron, Ada.", "Ada Byron");
  EXPECT_TRUE(std::is_sorted(mentions.begin(), mentions.end(),
                             [](const Mention& a, const Mention& b) { return a.key < b.key; }));
  EXPECT_EQ(
      std::count_if(mentions.begin(), mentions.end(), [](const Mention& m) { return m.key == "ada byron"; }),
      1);
}

TEST(Mentions, AnyBytesWillDo) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int i = 0; i < 200; ++i) bytes.push_back(static_cast<char>(random()));
    for (const Mention& mention : find_mentions(bytes, bytes)) EXPECT_FALSE(mention.key.empty());
  }
}

}  // namespace
}  // namespace rhapsode::text
