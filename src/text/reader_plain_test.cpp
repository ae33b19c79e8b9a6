#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/dates.h"
#include "text/readers.h"

namespace rhapsode::text {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> paths(const Document& document) {
  std::vector<std::string> out;
  for (const Section& section : document.sections) out.push_back(section.path);
  return out;
}

Document plain(const std::string& name, const std::string& text) {
  auto document = read_plain(name, text);
  EXPECT_TRUE(document.ok());
  EXPECT_EQ(document->text, text);
  return *std::move(document);
}

TEST(PlainReader, FieldsOfAPepGiveTitleAuthorAndDate) {
  const Document document =
      plain("pep-0012.rst",
            "PEP: 12\nTitle: Sample Template\nAuthor: David Goodger <g@python.org>,\n        Barry "
            "Warsaw <b@python.org>\nCreated: 05-Aug-2002\n\nAbstract\n========\n\nText.\n");
  EXPECT_EQ(document.title, "PEP 12: Sample Template");
  EXPECT_EQ(document.author, "David Goodger, Barry Warsaw");
  EXPECT_EQ(document.date, "2002-08-05");
  EXPECT_THAT(paths(document), ElementsAre("Abstract"));
}

TEST(PlainReader, HeadingsByUnderlines) {
  const Document document =
      plain("a.rst",
            "=====\nTitle\n=====\n\nOne\n===\n\ntext\n\nInner\n-----\n\nno heading\nhere:\n-----\n\n"
            "Two\n===\n\n=====  =====\ntable  cells\n=====  =====\n");
  EXPECT_THAT(paths(document), ElementsAre("Title", "Title > One", "Title > One > Inner", "Title > Two"));
  EXPECT_EQ(document.title, "Title");
  EXPECT_EQ(document.sections[0].begin, 0u);
}

TEST(PlainReader, ChapterLinesOfBooks) {
  const Document document =
      plain("book.txt",
            "Title: Moby Dick\n\nAuthor: Herman Melville\n\nCHAPTER 1. Loomings.\n\nCall me "
            "Ishmael.\n\nCHAPTER II\r\n\r\nText in which\n1. Stands no heading\n\nPART ONE of it\n");
  EXPECT_EQ(document.title, "Moby Dick");
  EXPECT_EQ(document.author, "Herman Melville");
  EXPECT_THAT(paths(document), ElementsAre("CHAPTER 1. Loomings.", "CHAPTER II"));
}

TEST(PlainReader, LiteralBlocksAndTablesAreCutAtTheirLines) {
  const std::string text =
      "Usage::\n\n    first()\n\n    second()\n\n===  ====\nkey  text\n===  ====\na    one\nb    two\n===  "
      "====\n\n"
      "+---+---+\n| k | t |\n+===+===+\n| a | 1 |\n+---+---+\n| b | 2 |\n+---+---+\n\n.. code-block:: c\n\n  "
      " int "
      "a;\n   int b;\n\nTitle\n=====\n";
  const Document document = plain("a.rst", text);
  ASSERT_EQ(document.row_blocks.size(), 4u);
  EXPECT_THAT(document.row_blocks[0].rows, ElementsAre(text.find("    first"), text.find("    second")));
  EXPECT_EQ(document.row_blocks[1].lead, "===  ====\nkey  text\n===  ====");
  EXPECT_THAT(document.row_blocks[1].rows, ElementsAre(text.find("a    one"), text.find("b    two")));
  EXPECT_EQ(document.row_blocks[2].lead, "+---+---+\n| k | t |\n+===+===+");
  EXPECT_THAT(document.row_blocks[2].rows, ElementsAre(text.find("| a |"), text.find("| b |")));
  EXPECT_EQ(document.row_blocks[3].lead, ".. code-block:: c");
  EXPECT_EQ(document.row_blocks[3].end, text.find("\nTitle"));
  EXPECT_THAT(paths(document), ElementsAre("Title"));
}

TEST(PlainReader, OrdinaryTextHasNoSections) {
  const Document document =
      plain("a.txt", "\xEF\xBB\xBFNote: this is no field of a document\nMore text.\n\nEnd.\n");
  EXPECT_THAT(document.sections, IsEmpty());
  EXPECT_EQ(document.title, "");
}

TEST(MarkdownReader, HeadingsFrontMatterAndTitle) {
  auto document = read_markdown(
      "a.md",
      "---\ntitle: \"The guide\"\nauthors:\n  - Ada Lovelace\n  - Alan Turing\ndate: "
      "2024-05-01\n---\n\n# The *guide*\n\n## Usage of [this](https://x.org) #\n\ntext\n\nSetext\n"
      "------\n\n    # code\n\n#nothing\n\n```\n# in code\n```\n### Deep `call()`\n");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->title, "The guide");
  EXPECT_EQ(document->author, "Ada Lovelace, Alan Turing");
  EXPECT_EQ(document->date, "2024-05-01");
  EXPECT_THAT(paths(*document), ElementsAre("The guide", "The guide > Usage of this", "The guide > Setext",
                                            "The guide > Setext > Deep call()"));
}

TEST(MarkdownReader, CrLfAndLfGiveTheSameStructure) {
  const std::string text = "# A\n\n|x|y|\n|-|-|\n|1|2|\n\n```c\nint a;\n```\n\n## B\n";
  std::string windows;
  for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const auto a = read_markdown("a.md", text), b = read_markdown("a.md", windows);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(paths(*a), paths(*b));
  ASSERT_EQ(a->row_blocks.size(), 2u);
  ASSERT_EQ(b->row_blocks.size(), 2u);
  EXPECT_EQ(b->row_blocks[0].lead, "|x|y|\r\n|-|-|");
  EXPECT_EQ(b->row_blocks[1].lead, "```c");
}

TEST(MarkdownReader, NestedAndUnclosedFences) {
  const std::string text = "````md\n```c\n# no heading\n```\n````\n# Yes\n~~~\nopen\n```\n# no\n";
  const auto document = read_markdown("a.md", text);
  ASSERT_TRUE(document.ok());
  EXPECT_THAT(paths(*document), ElementsAre("Yes"));
  ASSERT_EQ(document->row_blocks.size(), 2u);
  EXPECT_EQ(document->row_blocks[0].end, text.find("# Yes"));
  EXPECT_EQ(document->row_blocks[1].end, text.size());
}

TEST(MarkdownReader, BooksThatNameTheirAuthorInHeadings) {
  const auto document = read_markdown("m.md",
                                      "# Title: Moby-Dick\n\n## Author: Herman Melville\n\n## Year: 1851\n\n"
                                      "-------\n\n##  CHAPTER 1. Loomings. \n\nCall me Ishmael.\n");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->title, "Moby-Dick");
  EXPECT_EQ(document->author, "Herman Melville");
  EXPECT_EQ(document->date, "1851");
  EXPECT_THAT(paths(*document), ElementsAre("Moby-Dick", "Moby-Dick > CHAPTER 1. Loomings."));
}

TEST(MarkdownReader, HostileInputEndsSoon) {
  std::string links = "# ", rows, fences;
  for (int i = 0; i < 1000000; ++i) links += "](";
  for (int i = 0; i < 100000; ++i) rows += "|a|\n|-|\n";
  for (int i = 0; i < 100000; ++i) fences += "```\n````\n~~~\n";
  for (const std::string& text :
       {links, rows, fences, std::string(10 << 20, ' '), std::string(10 << 20, '|')}) {
    ASSERT_TRUE(read_markdown("a.md", text).ok());
    ASSERT_TRUE(read_plain("a.txt", text).ok());
    ASSERT_TRUE(read_table("a.csv", text).ok());
  }
}

TEST(TableReader, RowsMayHoldLineEndsAndQuotes) {
  const std::string text = "id,text\r\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n\r\n2,x\r\n";
  const auto document = read_table("a.csv", text);
  ASSERT_TRUE(document.ok());
  ASSERT_EQ(document->row_blocks.size(), 1u);
  const RowBlock& block = document->row_blocks[0];
  EXPECT_EQ(block.lead, "id,text");
  EXPECT_THAT(block.rows, ElementsAre(text.find("1,"), text.find("2,x")));
  EXPECT_EQ(block.end, text.size());
}

TEST(TableReader, FindsTheDelimiter) {
  EXPECT_EQ(table_delimiter("a,b\n1,2\n"), ',');
  EXPECT_EQ(table_delimiter("a\tb, c\n1\t2\n"), '\t');
  EXPECT_EQ(table_delimiter("a;b;c\n1;2,5;3\n"), ';');
  EXPECT_EQ(table_delimiter("\xEF\xBB\xBF"
                            "a|b\n1|2"),
            '|');
  EXPECT_EQ(table_delimiter("Some prose, of two lines.\nNo table.\n"), '\0');
  EXPECT_EQ(table_delimiter(""), '\0');
}

TEST(TableReader, AQuoteThatIsNeverClosedEndsWithItsLine) {
  std::string text = "a,b\n";
  for (int i = 0; i < 1000; ++i) text += "\"open,2\n";
  const auto document = read_table("a.csv", text);
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->row_blocks[0].rows.size(), 1000u);
  EXPECT_THAT(document->warnings, ::testing::Not(IsEmpty()));
}

TEST(Dates, OfManyForms) {
  EXPECT_EQ(iso_date("2001-07-05"), "2001-07-05");
  EXPECT_EQ(iso_date("2001/7/5"), "2001-07-05");
  EXPECT_EQ(iso_date("2001-07-05 10:30"), "2001-07-05T10:30:00");
  EXPECT_EQ(iso_date("2001-07-05T10:30:00.123Z"), "2001-07-05T10:30:00Z");
  EXPECT_EQ(iso_date("2001-07-05T10:30:00+02:00"), "2001-07-05T10:30:00+02:00");
  EXPECT_EQ(iso_date("05-Jul-2001"), "2001-07-05");
  EXPECT_EQ(iso_date("Thu, 5 Jul 2001 10:30:00 +0200 (CEST)"), "2001-07-05T10:30:00+02:00");
  EXPECT_EQ(iso_date("Thu, 5 Jul 2001 10:30:00 -0430"), "2001-07-05T10:30:00-04:30");
  EXPECT_EQ(iso_date("July 5th, 2001"), "2001-07-05");
  EXPECT_EQ(iso_date("May 2001"), "2001-05");
  EXPECT_EQ(iso_date("1851"), "1851");
  EXPECT_EQ(iso_date("1700000000"), "2023-11-14T22:13:20Z");
  EXPECT_EQ(iso_date("1700000000000"), "2023-11-14T22:13:20Z");
  for (const char* none :
       {"", "soon", "01/02/2003", "2001-13-05", "2001-07-99", "99999999999999999999", "5 Jul"}) {
    EXPECT_EQ(iso_date(none), "") << none;
  }
}

}  // namespace
}  // namespace rhapsode::text
