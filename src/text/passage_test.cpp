#include "text/passage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "support/test_models.h"
#include "text/readers.h"
#include "text/text_scan.h"
#include "text/tokenizer.h"

namespace rhapsode::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

int quarter_bytes(std::string_view text) {
  return static_cast<int>((text.size() + 3) / 4);
}

std::string slice(const Document& document, const Passage& passage) {
  return document.text.substr(passage.begin, passage.end - passage.begin);
}

std::vector<Passage> cut(const Document& document, const PassageLimits& limits = {},
                         const TokenCounter& counter = quarter_bytes) {
  auto passages = cut_passages(document, counter, limits);
  EXPECT_TRUE(passages.ok()) << passages.error().message;
  return passages.ok() ? *passages : std::vector<Passage>();
}

// What holds for every document: nothing lost, nothing twice, within the limit, lines and characters whole.
void expect_sound(const Document& document, const std::vector<Passage>& passages, const TokenCounter& counter,
                  const PassageLimits& limits = {}) {
  size_t at = 0;
  int line = 1;
  for (const Passage& passage : passages) {
    ASSERT_EQ(passage.begin, at);
    ASSERT_GT(passage.end, passage.begin);
    EXPECT_EQ(passage.line, line);
    const std::string body = slice(document, passage);
    EXPECT_LE(counter(passage.header + "\n" + body), limits.most_tokens);
    EXPECT_FALSE(is_continuation(body[0]));
    EXPECT_FALSE(passage.header.ends_with('\n'));
    line += static_cast<int>(std::count(body.begin(), body.end(), '\n'));
    at = passage.end;
  }
  EXPECT_EQ(at, document.text.size());
}

Document plain(std::string text, std::string name = "a.txt") {
  Document document;
  document.name = std::move(name);
  document.text = std::move(text);
  return document;
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

TEST(Passages, ShortTextIsOnePassageWithTheNameAsHeader) {
  const auto passages = cut(plain("Call me Ishmael.\n", "moby.txt"));
  ASSERT_EQ(passages.size(), 1u);
  EXPECT_EQ(passages[0].header, "moby.txt");
  EXPECT_EQ(passages[0].line, 1);
  EXPECT_EQ(passages[0].page, 0);
}

TEST(Passages, FillTowardsTheAim) {
  const Document document = plain(repeated("A sentence of a few words stands here. ", 100000));
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  for (size_t i = 0; i + 1 < passages.size(); ++i) {
    EXPECT_NEAR(quarter_bytes(slice(document, passages[i])), 510, 15);
    EXPECT_THAT(slice(document, passages[i]), StartsWith("A sentence"));
  }
}

TEST(Passages, CutAtParagraphsRatherThanAtSentences) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Paragraph. " + repeated("Some words follow it. ", 700) + "\n\n";
  const Document document = plain(text);
  for (const Passage& passage : cut(document))
    EXPECT_THAT(slice(document, passage), StartsWith("Paragraph."));
}

TEST(Passages, ASmallRemainderJoinsTheLastPassage) {
  const Document document = plain(repeated("One more sentence, of forty-four bytes here. ", 4 * 580));
  EXPECT_EQ(cut(document).size(), 1u);
}

TEST(Passages, HeaderSaysWhereThePassageStands) {
  Document document = plain("intro\n\n" + repeated("word ", 3000), "docs/guide.md");
  document.title = "The guide";
  document.author = "Ada Lovelace";
  document.date = "2024-05-01";
  document.sections = {{7, "The guide > Usage > Options"}};
  document.breaks = {{7, BreakStrength::kSection}};
  const auto passages = cut(document);
  ASSERT_EQ(passages.size(), 2u);
  EXPECT_EQ(passages[0].header, "docs/guide.md, \"The guide\" (Ada Lovelace, 2024-05-01)");
  EXPECT_EQ(passages[1].header, "docs/guide.md, \"The guide\": Usage > Options (Ada Lovelace, 2024-05-01)");
}

TEST(Passages, LongHeadersAreShortenedToSixtyTokens) {
  Document document = plain(repeated("word ", 9000), repeated("folder/", 3000) + "name.txt");
  document.title = repeated("title ", 5000);
  document.author = repeated("Somebody Else, ", 5000);
  document.date = "2024-05-01";
  document.sections = {{0, repeated("Part > ", 5000) + "the end"}};
  for (const Passage& passage : cut(document)) {
    EXPECT_LE(quarter_bytes(passage.header), 60);
    EXPECT_THAT(passage.header, HasSubstr("the end"));
    EXPECT_THAT(passage.header, HasSubstr("name.txt"));
    EXPECT_THAT(passage.header, HasSubstr("2024-05-01"));
  }
}

TEST(Passages, HeaderIsOneLineWhateverTheTitleHolds) {
  Document document = plain("text", "a\nb\r\n.txt");
  document.title = "two\nlines\x01";
  EXPECT_EQ(cut(document)[0].header, "a b .txt, \"two lines\"");
}

TEST(Passages, AHeadingStaysWithWhatFollows) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "## Heading " + std::to_string(i) + "\n\n" + repeated("Words of the section. ", 300 + i * 37) +
            "\n\n";
  }
  const auto document = read_markdown("a.md", text);
  ASSERT_TRUE(document.ok());
  const auto passages = cut(*document);
  expect_sound(*document, passages, quarter_bytes);
  for (const Passage& passage : passages) {
    const std::string body = slice(*document, passage);
    const size_t last = body.rfind("## Heading");
    if (last == std::string::npos) continue;
    EXPECT_THAT(body.substr(last), HasSubstr("Words of the section."));
  }
}

TEST(Passages, AHundredThousandHeadingsInARow) {
  const auto document = read_markdown("a.md", repeated("# H\n## I\n", 500000));
  ASSERT_TRUE(document.ok());
  expect_sound(*document, cut(*document), quarter_bytes);
}

TEST(Passages, TenMegabytesInOneLine) {
  const Document document = plain(repeated("lorem ipsum dolor sit amet ", 10 << 20));
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  for (size_t i = 1; i < passages.size(); ++i) EXPECT_EQ(document.text[passages[i].begin - 1], ' ');
}

TEST(Passages, MegabytesOfBlanksOrCommasEndSoon) {
  for (const char c : {' ', '\n', ',', '.', '\0'}) {
    const Document document = plain("start " + std::string(2 << 20, c) + " end.");
    expect_sound(document, cut(document), quarter_bytes);
  }
}

TEST(Passages, AWordLongerThanAPassageIsCutAtACharacter) {
  const Document document = plain("short " + repeated("ü", 50000) + " end");
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  EXPECT_GT(passages.size(), 15u);
}

TEST(Passages, AWordThatFitsIsNeverCut) {
  std::string text;
  std::vector<size_t> words;
  for (int i = 0; i < 100; ++i) {
    words.push_back(text.size());
    text += repeated("x", 1000 + i * 7) + " ";
  }
  const Document document = plain(text);
  for (const Passage& passage : cut(document)) {
    EXPECT_TRUE(std::binary_search(words.begin(), words.end(), passage.begin)) << passage.begin;
  }
}

// Case I7: 80 rows, every later part repeats the head and no row is cut; the same for 300 lines of code.
TEST(Passages, TablesAreCutBetweenRowsAndRepeatTheirHead) {
  std::string text = "# Boxes\n\nAll boxes:\n\n| box | holds |\n|-----|-------|\n";
  for (int i = 0; i < 80; ++i) text += "| " + std::to_string(i) + " | " + repeated("something ", 80) + "|\n";
  const auto document = read_markdown("boxes.md", text);
  ASSERT_TRUE(document.ok());
  const auto passages = cut(*document);
  ASSERT_GT(passages.size(), 2u);
  expect_sound(*document, passages, quarter_bytes);
  EXPECT_THAT(slice(*document, passages[0]), HasSubstr("| 1 | something"));
  for (size_t i = 1; i < passages.size(); ++i) {
    EXPECT_THAT(passages[i].header, ::testing::EndsWith("\n| box | holds |\n|-----|-------|"));
    EXPECT_THAT(slice(*document, passages[i]), StartsWith("| "));
    EXPECT_TRUE(slice(*document, passages[i]).ends_with("|\n"));
  }
}

TEST(Passages, FencedCodeIsCutBetweenLinesAndRepeatsItsFence) {
  std::string text = "Before.\n\n```python\n";
  for (int i = 0; i < 300; ++i)
    text += "    value_" + std::to_string(i) + " = compute(" + std::to_string(i) + ")\n";
  text += "```\n\nAfter.\n";
  const auto document = read_markdown("a.md", text);
  ASSERT_TRUE(document.ok());
  const auto passages = cut(*document);
  ASSERT_GT(passages.size(), 3u);
  expect_sound(*document, passages, quarter_bytes);
  for (size_t i = 1; i < passages.size(); ++i) {
    EXPECT_THAT(passages[i].header, ::testing::EndsWith("\n```python"));
    EXPECT_THAT(slice(*document, passages[i]), StartsWith("    value_"));
  }
}

// Case I8: three headings with tables are three equal parts, whatever ends the lines.
TEST(Passages, HeadingsStayWithTheirTablesForBothLineEnds) {
  for (const std::string end : {"\n", "\r\n"}) {
    std::string text;
    for (int i = 0; i < 3; ++i) {
      text += "## Sales " + std::to_string(i) + end + end + "| city | sum |" + end + "|---|---|" + end;
      for (int row = 0; row < 50; ++row) text += "| Springfield | " + std::to_string(1000 + row) + " |" + end;
      text += end;
    }
    const auto document = read_markdown("sales.md", text);
    ASSERT_TRUE(document.ok());
    const auto passages = cut(*document, {300, 400});
    ASSERT_EQ(passages.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_THAT(slice(*document, passages[i]), StartsWith("## Sales " + std::to_string(i)));
      EXPECT_EQ(passages[i].end - passages[i].begin, passages[0].end - passages[0].begin);
      EXPECT_EQ(passages[i].header, "sales.md: Sales " + std::to_string(i));
    }
  }
}

TEST(Passages, ALongLeadIsShortened) {
  Document document = plain(repeated("head;", 9000) + "\n" + repeated("cell;cell\n", 9000));
  RowBlock block{0, document.text.size(), repeated("head;", 9000), {}};
  for (size_t at = document.text.find('\n') + 1; at < document.text.size(); at += 10)
    block.rows.push_back(at);
  document.row_blocks = {block};
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  EXPECT_TRUE(passages.back().header.ends_with("…"));
  EXPECT_THAT(passages.back().header, StartsWith("a.txt\nhead;"));
}

TEST(Passages, ARowLongerThanAPassageIsCutAtWeakerPlaces) {
  Document document = plain("h\n" + repeated("long row ", 9000) + "\nrow\n");
  document.row_blocks = {{0, document.text.size(), "h", {2, document.text.size() - 4}}};
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  ASSERT_GT(passages.size(), 3u);
  EXPECT_EQ(passages[1].header, "a.txt\nh");
}

TEST(Passages, BlocksAndBreaksOfAMistakenReaderDoNoHarm) {
  Document document = plain(repeated("äöü ", 8000));
  document.row_blocks = {
      {1, 50, "x", {2, 3, 3, 1}}, {40, 90, "y", {1}}, {100, 90, "z", {}}, {200, 99999, "", {300}}};
  document.breaks = {{1, BreakStrength::kPage}, {2, BreakStrength::kWord}, {99999, BreakStrength::kSection}};
  document.sections = {{99999, "far"}};
  expect_sound(document, cut(document), quarter_bytes);
}

// Case I13: pages and lines are stored, never inferred; a document without pages has none.
TEST(Passages, PagesFollowTheirStarts) {
  Document document =
      plain(repeated("Grüße vom Ende der Welt. ", 3000) + "\f" + repeated("Second page. ", 3000));
  const size_t second = document.text.find('\f') + 1;
  document.page_starts = {0, second};
  document.breaks = {{second, BreakStrength::kPage}};
  const auto passages = cut(document);
  expect_sound(document, passages, quarter_bytes);
  for (const Passage& passage : passages) {
    EXPECT_EQ(passage.page, slice(document, passage).find("Second") == std::string::npos ? 1 : 2);
  }
}

TEST(Passages, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(cut_passages(plain("a\xFFz"), quarter_bytes).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(cut_passages(plain("a"), quarter_bytes, {4, 8}).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(cut_passages(plain("a"), quarter_bytes, {64, 32}).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(cut(plain("")).empty());
}

// A counter whose sums are too low: joined pieces have more tokens than the pieces had.
TEST(Passages, LimitHoldsWhenSumsOfPiecesAreTooLow) {
  const auto growing = [](std::string_view text) {
    return static_cast<int>(text.size() / (text.size() > 500 ? 2 : 8));
  };
  const Document document = plain(repeated("Some words of a sentence. ", 20000));
  expect_sound(document, cut(document, {}, growing), growing);
}

std::string random_document(std::mt19937& random) {
  static const std::vector<std::string> kUnits = {"word ",
                                                  "A sentence ends. ",
                                                  "\n",
                                                  "\n\n",
                                                  "# Title\n",
                                                  "### Deep title\n\n",
                                                  "```\n",
                                                  "~~~~\n",
                                                  "| a | b |\n|---|---|\n| 1 | 2 |\n",
                                                  "| 3 | 4 |\n",
                                                  "- item\n",
                                                  "    code();\n",
                                                  "\r\n",
                                                  "Ünïcödé ",
                                                  "昨日は駅前の本屋で",
                                                  "。",
                                                  "地図帳を買った",
                                                  "한국어 ",
                                                  "ไทย",
                                                  "👩‍👩‍👧‍👦",
                                                  "e\xCC\x81",
                                                  "\t",
                                                  std::string(1, '\0'),
                                                  "x@y.org ",
                                                  "https://example.org/a.b?c=d ",
                                                  "3.14 ",
                                                  "e.g. ",
                                                  "Dr. Who ",
                                                  "\f",
                                                  "---\n",
                                                  "====\n",
                                                  "“quoted.” ",
                                                  "  "};
  std::string text;
  const size_t units = random() % 3000;
  for (size_t i = 0; i < units; ++i) text += kUnits[random() % kUnits.size()];
  if (random() % 4 == 0) text += repeated("y", random() % 5000);
  return text;
}

TEST(Passages, RandomTextsKeepEveryPromise) {
  std::mt19937 random(4);
  for (int round = 0; round < 150; ++round) {
    const std::string text = random_document(random);
    auto document = round % 3 == 0   ? read_plain("r.txt", text)
                    : round % 3 == 1 ? read_markdown("r.md", text)
                                     : read_table("r.csv", text);
    ASSERT_TRUE(document.ok());
    ASSERT_EQ(document->text, text);
    const PassageLimits limits = round % 2 == 0 ? PassageLimits{} : PassageLimits{40, 60};
    const auto passages = cut(*document, limits);
    expect_sound(*document, passages, quarter_bytes, limits);
    for (const Passage& passage : passages) {
      if (passage.begin == 0) continue;
      const char before = text[passage.begin - 1];
      const char after = text[passage.begin];
      const bool in_word = is_ascii_letter(before) && is_ascii_letter(after);
      EXPECT_FALSE(in_word && before != 'y') << text.substr(passage.begin - 10, 20);
    }
    const auto again = cut(*document, limits);
    ASSERT_EQ(again.size(), passages.size());
    for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].header, passages[i].header);
  }
}

TEST(Passages, LimitsHoldUnderARealTokenizer) {
  RH_REQUIRE_MODEL(model, "smollm2-135m");
  const auto tokenizer = Tokenizer::load(model);
  ASSERT_TRUE(tokenizer.ok());
  const TokenCounter counter = [&](std::string_view text) {
    const auto ids = (*tokenizer)->encode(text);
    return ids.ok() ? static_cast<int>(ids->size()) : 1 << 20;
  };
  std::ifstream file(std::string(RHAPSODE_SOURCE_DIR) + "/CONTRIBUTING.md", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  const auto document = read_markdown("CONTRIBUTING.md", text.str());
  ASSERT_TRUE(document.ok());
  expect_sound(*document, cut(*document, {}, counter), counter);
  std::mt19937 random(8);
  const auto noise = read_markdown("noise.md", random_document(random));
  expect_sound(*noise, cut(*noise, {}, counter), counter);
}

TEST(Header, PathsOfTheMachineAreLeftOut) {
  Document document;
  document.text = "Some text.\n";
  for (const auto& [name, header] :
       {std::pair("/home-of/someone/notes/guide.md", "notes/guide.md"), std::pair("/guide.md", "guide.md"),
        std::pair("../../notes/guide.md", "notes/guide.md"), std::pair("a/b/c/guide.md", "a/b/c/guide.md")}) {
    document.name = name;
    EXPECT_EQ(cut(document)[0].header, header);
  }
}

// The project's own text and code: every file sound, passages well filled, headers short.
TEST(Passages, OfTheProjectItself) {
  size_t count = 0, tokens = 0;
  for (const char* folder : {"docs", "src", "scripts"}) {
    const std::filesystem::path root = std::filesystem::path(RHAPSODE_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = entry.path().lexically_relative(RHAPSODE_SOURCE_DIR).string();
      const bool markdown = name.ends_with(".md");
      if (!entry.is_regular_file() || (!markdown && code_language(name, "").empty())) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::stringstream text;
      text << file.rdbuf();
      const auto document = markdown ? read_markdown(name, text.str()) : read_code(name, text.str());
      ASSERT_TRUE(document.ok());
      const auto passages = cut(*document);
      expect_sound(*document, passages, quarter_bytes);
      for (const Passage& passage : passages) {
        EXPECT_LE(quarter_bytes(passage.header.substr(0, passage.header.find('\n'))), 60) << passage.header;
        if (passage.end == document->text.size()) continue;  // the last one holds what is left
        tokens += static_cast<size_t>(quarter_bytes(slice(*document, passage)));
        ++count;
      }
    }
  }
  ASSERT_GT(count, 100u);
  EXPECT_GT(tokens / count, 400u);
  EXPECT_LT(tokens / count, 560u);
}

std::vector<std::string> sentences(const std::string& text, DocumentKind kind = DocumentKind::kPlain) {
  std::vector<std::string> out;
  const auto starts = sentence_starts(text, kind);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    out.emplace_back(trim(text.substr(starts[i], end - starts[i])));
  }
  return out;
}

TEST(Sentences, EndAtStopsButNotAtAbbreviationsDecimalsOrAddresses) {
  EXPECT_THAT(sentences("Dr. Smith paid 3.14 dollars, e.g. to J. Doe. He wrote to a.b@c.org! Why? See "
                        "https://x.org/a.b?c=1. \"Done.\" The end"),
              ElementsAre("Dr. Smith paid 3.14 dollars, e.g. to J. Doe.", "He wrote to a.b@c.org!", "Why?",
                          "See https://x.org/a.b?c=1.", "\"Done.\"", "The end"));
  EXPECT_THAT(sentences("“Stop!” he said... and left. So it was."),
              ElementsAre("“Stop!” he said... and left.", "So it was."));
}

TEST(Sentences, OfScriptsWithoutSpaces) {
  EXPECT_THAT(sentences("昨日は駅前に行った。地図帳を買った！「はい。」次。"),
              ElementsAre("昨日は駅前に行った。", "地図帳を買った！", "「はい。」", "次。"));
  EXPECT_THAT(sentences("क्या हुआ। वह गया।"), ElementsAre("क्या हुआ।", "वह गया।"));
}

TEST(Sentences, WrapOverLinesAndEndAtBlocks) {
  EXPECT_THAT(
      sentences("A heading\n\nA sentence that\nwraps. Another\none.\n- first item\n- second\n3. third\n",
                DocumentKind::kMarkdown),
      ElementsAre("A heading", "A sentence that\nwraps.", "Another\none.", "- first item", "- second",
                  "3. third"));
  EXPECT_THAT(sentences("# H\ntext\n| a | b |\n|---|---|\n| 1. | 2. |\n```\nint a; b.\nint c;\n```\nEnd.",
                        DocumentKind::kMarkdown),
              ElementsAre("# H", "text", "| a | b |", "|---|---|", "| 1. | 2. |", "```", "int a; b.",
                          "int c;", "```", "End."));
}

TEST(Sentences, FieldsOfAHeadAreOneEach) {
  EXPECT_THAT(
      sentences(
          "PEP: 12\nTitle: A template\nAuthor: Ada,\n        Bob\nStatus: Active\n\nText: of\ntwo lines"),
      ElementsAre("PEP: 12", "Title: A template", "Author: Ada,\n        Bob", "Status: Active",
                  "Text: of\ntwo lines"));
}

TEST(Sentences, OfCodeAreLinesAndOfTablesRows) {
  EXPECT_THAT(sentences("int a;\n\n  return b. c;\n", DocumentKind::kCode),
              ElementsAre("int a;", "return b. c;"));
  EXPECT_THAT(sentences("a,b\n1,\"x\n\ny\"\n2,z\n", DocumentKind::kTable),
              ElementsAre("a,b", "1,\"x\n\ny\"", "2,z"));
}

TEST(Sentences, AscendFromZeroOnAnyBytes) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 200, '\0');
    for (char& c : text)
      c = static_cast<char>(random() % 3 == 0 ? ".!? \n\"|#`"[random() % 9] : random() % 256);
    for (const auto kind :
         {DocumentKind::kPlain, DocumentKind::kMarkdown, DocumentKind::kCode, DocumentKind::kTable}) {
      const auto starts = sentence_starts(text, kind);
      EXPECT_EQ(starts.front(), 0u);
      EXPECT_TRUE(std::is_sorted(starts.begin(), starts.end()));
      EXPECT_TRUE(std::adjacent_find(starts.begin(), starts.end()) == starts.end());
      EXPECT_TRUE(starts.back() <= text.size());
    }
  }
}

}  // namespace
}  // namespace rhapsode::text
