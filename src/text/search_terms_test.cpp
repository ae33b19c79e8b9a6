#include "text/search_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace rhapsode::text {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

TEST(SearchTerms, FoldCaseAccentsAndCompatibilityForms) {
  EXPECT_THAT(search_terms("Ünïcödé STRASSE straße ﬁne Ｆｕｌｌ ②"),
              ElementsAre("unicode", "strasse", "strasse", "fine", "full", "2"));
  EXPECT_EQ(search_terms("cafe\xCC\x81"), search_terms("caf\xC3\xA9"));
}

// Case I10: soft hyphens and zero-width signs are not seen by a search.
TEST(SearchTerms, DropSoftHyphensAndZeroWidthSigns) {
  EXPECT_THAT(search_terms("co\xC2\xADop wo\xE2\x80\x8Brd \xEF\xBB\xBFmark"),
              ElementsAre("coop", "word", "mark"));
}

TEST(SearchTerms, SplitAtWhatIsNoLetterDigitOrMark) {
  EXPECT_THAT(search_terms("a-b, c.d/e@f (g) 3.14 #h"),
              ElementsAre("a", "b", "c", "d", "e", "f", "g", "3", "14", "h"));
  EXPECT_THAT(search_terms(" \n..., — "), IsEmpty());
}

TEST(SearchTerms, PartsOfProgrammersNamesStandBesideTheWhole) {
  EXPECT_THAT(search_terms("most_source_bytes"), ElementsAre("most_source_bytes", "most", "source", "bytes"));
  EXPECT_THAT(search_terms("parseHTMLDocument"),
              ElementsAre("parsehtmldocument", "parse", "html", "document"));
  EXPECT_THAT(search_terms("__init__ kPieceBytes"),
              ElementsAre("init", "kpiecebytes", "k", "piece", "bytes"));
  EXPECT_THAT(search_terms("IPv6 sha256"), ElementsAre("ipv6", "i", "pv6", "sha256"));
}

// Case I12: a word inside an unspaced run is found, in a question as in a document.
TEST(SearchTerms, UnspacedScriptsBecomeBigrams) {
  EXPECT_THAT(search_terms("昨日は駅前の本屋で地図帳を買った"), IsSupersetOf(search_terms("地図帳")));
  EXPECT_THAT(search_terms("저는한국어를배웁니다"), IsSupersetOf(search_terms("한국어")));
  // Two characters are a query, wherever they stand in a run.
  EXPECT_THAT(search_terms("昨日は駅前の本屋で地図帳を買った"), IsSupersetOf(search_terms("本屋")));
  EXPECT_THAT(search_terms("저는한국어를배웁니다"), IsSupersetOf(search_terms("국어")));
  EXPECT_THAT(search_terms("ฉันรักแผนที่มาก"), IsSupersetOf(search_terms("รัก")));
  EXPECT_EQ(search_terms("本屋").size(), 1u);
  EXPECT_THAT(search_terms("地図帳"), ElementsAre("地図", "図帳"));
  EXPECT_THAT(search_terms("本"), ElementsAre("本"));
  EXPECT_THAT(search_terms("Python入門2024年"), ElementsAre("python", "入門", "2024", "年"));
  EXPECT_THAT(search_terms("ฉันรักแผนที่มาก"), IsSupersetOf(search_terms("แผนที่")));
}

TEST(SearchTerms, DecomposedHangulAndKanaEqualTheComposed) {
  EXPECT_EQ(search_terms("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB\xE1\x84\x80\xE1\x85\xA9"),
            search_terms("한고"));
  EXPECT_EQ(search_terms("か\xE3\x82\x99き"), search_terms("がき"));
  EXPECT_EQ(search_terms("ｶﾞｷﾞ"), search_terms("ガギ"));
  EXPECT_NE(search_terms("かき"), search_terms("がき"));
}

TEST(SearchTerms, QuestionsLoseRepeatsAndFunctionWords) {
  EXPECT_THAT(question_terms("What is the name of the whale, and who named the Whale?"),
              ElementsAre("name", "whale", "named"));
  EXPECT_THAT(question_terms("Who are you?"), ElementsAre("who", "are", "you"));
  EXPECT_THAT(question_terms(""), IsEmpty());
}

TEST(SearchTerms, BrokenBytesSeparateWordsAndDoNoHarm) {
  EXPECT_THAT(search_terms("ab\xFF"
                           "cd\xE3\x81"),
              ElementsAre("ab", "cd"));
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 300, '\0');
    for (char& c : text) c = static_cast<char>(random() % 256);
    for (const std::string& term : search_terms(text)) EXPECT_FALSE(term.empty());
  }
  EXPECT_GT(search_terms(std::string(1 << 20, 'x')).size(), 1000u);  // no term without bound
}

}  // namespace
}  // namespace rhapsode::text
