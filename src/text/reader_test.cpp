#include "text/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/text_check.h"

namespace rhapsode::text {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

DocumentKind kind_of(const std::string& name, const std::string& bytes) {
  const auto document = read_document(name, bytes);
  EXPECT_TRUE(document.ok()) << name << ": " << (document.ok() ? "" : document.error().message);
  return document.ok() ? document->kind : DocumentKind::kPlain;
}

TEST(ReadDocument, ContentDecidesBeforeTheName) {
  EXPECT_EQ(kind_of("page", "<!DOCTYPE html><p>x"), DocumentKind::kHtml);
  EXPECT_EQ(kind_of("page.txt", "\n<?xml version='1.0'?><!-- c --><HTML><p>x</p></HTML>"),
            DocumentKind::kHtml);
  EXPECT_EQ(kind_of("a.md", "# Title\n\ntext"), DocumentKind::kMarkdown);
  EXPECT_EQ(kind_of("-", "## Title\n\n[a](http://b)"), DocumentKind::kMarkdown);
  EXPECT_EQ(kind_of("-", "just some words"), DocumentKind::kPlain);
  EXPECT_EQ(kind_of("a.txt", "just some words"), DocumentKind::kPlain);
  EXPECT_EQ(kind_of("a.rst", "Title\n=====\n\ntext"), DocumentKind::kPlain);
  EXPECT_EQ(kind_of("a.py", "def f():\n    pass\n"), DocumentKind::kCode);
  EXPECT_EQ(kind_of("tool", "#!/usr/bin/env python3\nprint(1)\n"), DocumentKind::kCode);
  EXPECT_EQ(kind_of("a.csv", "a,b\n1,2\n"), DocumentKind::kTable);
  EXPECT_EQ(kind_of("log.jsonl", "{\"role\":\"user\",\"text\":\"hi\"}\n"), DocumentKind::kMessages);
  EXPECT_EQ(kind_of("mail.eml", "From: a@b.c\nDate: Mon, 1 Jan 2024 10:00:00 +0000\nSubject: s\n\nbody\n"),
            DocumentKind::kMessages);
}

TEST(ReadDocument, TextFormatsKeepTheirBytes) {
  const std::string text = "\xEF\xBB\xBFline one\r\n\r\nco\u00ADop \u5730\u56F3\n";
  const auto document = read_document("a.txt", text);
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->text, text);
  EXPECT_FALSE(document->extracted);
}

TEST(ReadDocument, OtherCharsetsAreExtractedText) {  // case I10
  const auto utf16 = read_document("a.txt", "\xFF\xFEh\0e\0l\0l\0o\0"s);
  ASSERT_TRUE(utf16.ok());
  EXPECT_EQ(utf16->text, "hello");
  EXPECT_TRUE(utf16->extracted);
  const auto latin = read_document("a.html", "<html><head><meta charset=iso-8859-1></head><p>caf\xE9</p>");
  ASSERT_TRUE(latin.ok());
  EXPECT_EQ(latin->text, "caf\u00E9");
  EXPECT_TRUE(latin->warnings.empty());
  const auto guessed = read_document("a.txt", "caf\xE9");
  ASSERT_TRUE(guessed.ok());
  EXPECT_THAT(guessed->warnings, ElementsAre(HasSubstr("windows-1252")));
}

TEST(ReadDocument, WhatHoldsNoTextIsNotFound) {  // case I3
  for (const std::string& bytes :
       {""s, "  \n"s, std::string(64, '\0'), "\xEF\xBB\xBF"s, "\xFF\xFE \0\n\0"s}) {
    for (const char* name : {"a.txt", "a.md", "a.html", "a.py", "a.csv", "a.json", "-"}) {
      const auto document = read_document(name, bytes);
      ASSERT_FALSE(document.ok()) << name;
      EXPECT_EQ(document.error().kind, ErrorKind::kNotFound);
      EXPECT_THAT(document.error().message, HasSubstr("holds no text"));
    }
  }
  EXPECT_TRUE(read_document("a.txt", "x").ok());
}

TEST(ReadDocument, WhatCannotBeReadSaysWhatToDo) {
  EXPECT_EQ(read_document("a.bin", "ab\0cd"s).error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(read_document("a.doc", "\xD0\xCF\x11\xE0\xA1\xB1").error().message, HasSubstr("DOCX"));
  EXPECT_THAT(read_document("a.rtf", "{\\rtf1 x}").error().message, HasSubstr("RTF"));
  EXPECT_EQ(read_document("a.pdf", "no pdf").error().kind, ErrorKind::kCorrupt);
}

TEST(ReadDocument, NotebooksHaveCellsAndCutOutputs) {
  const std::string long_output(5000, 'o');
  const std::string notebook =
      R"({"nbformat":4,"metadata":{"title":"N"},"cells":[)"
      R"({"cell_type":"markdown","source":["# Title\n","Some *text*."]},)"
      R"({"cell_type":"code","source":"a = 1\nprint(a)\n","outputs":[)"
      R"({"output_type":"stream","text":["1\n"]},)"
      R"({"output_type":"display_data","data":{"image/png":"iVBORw0KGgo=","text/plain":"<Figure>"}},)"
      R"({"output_type":"error","ename":"E","evalue":"bad","traceback":["long"]}]},)"
      R"({"cell_type":"code","source":"b","outputs":[{"output_type":"stream","text":")" +
      long_output + R"("}]},{"cell_type":"markdown","source":""}]})";
  const auto document = read_document("a.ipynb", notebook);
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->kind, DocumentKind::kNotebook);
  EXPECT_EQ(document->title, "N");
  EXPECT_THAT(
      document->text,
      testing::StartsWith("# Title\nSome *text*.\n\na = 1\nprint(a)\n\n1\n<Figure>\nE: bad\n\nb\n\nooo"));
  EXPECT_EQ(document->text.find("iVBOR"), std::string::npos);
  EXPECT_THAT(document->warnings, ElementsAre("the output of cell 3 is cut to 2000 of 5000 bytes"));
  ASSERT_FALSE(document->sections.empty());
  EXPECT_EQ(document->sections[0].path, "Title");
  ASSERT_GE(document->row_blocks.size(), 2u);
  EXPECT_EQ(document->text.substr(document->row_blocks[0].rows[1], 5), "print");
}

TEST(ReadDocument, BrokenNotebooksAreErrors) {
  for (const std::string& json :
       {"{\"cells\":[,\"nbformat\":4"s, "{\"cells\":{},\"nbformat\":4}"s, "[]"s, std::string(200'000, '['),
        "{\"nbformat\":4,\"cells\":[1,null,\"x\",[]]}"s, "{\"nbformat\":4,\"cells\":[{\"source\":7}]}"s}) {
    EXPECT_FALSE(read_document("a.ipynb", json).ok()) << json.substr(0, 50);
  }
}

// Whatever the bytes: a document whose text is UTF-8 and whose offsets lie inside it, or an error.
TEST(ReadDocument, AnyBytesGiveADocumentOrAnError) {
  std::mt19937 random(11);
  const std::vector<std::string> seeds = {"<html><table><tr><td>a<td>b<pre>x",
                                          "{\"nbformat\":4,\"cells\":[{\"source\":\"a\"}]}",
                                          "%PDF-1.4\n1 0 obj",
                                          "PK\x03\x04\x14\0\0\0\x08\0"s,
                                          "# a\n\n|a|b|\n|-|-|\n|1|2|\n",
                                          "From: a@b\nSubject: c\n\nx",
                                          "{\"role\":\"a\",\"text\":\"b\"}\n",
                                          "\xFF\xFEx\0"s};
  const std::vector<std::string> names = {"a.html", "a.ipynb", "a",     "a.docx", "a.md",
                                          "a.eml",  "a.jsonl", "a.csv", "a.py",   "a.txt"};
  for (int round = 0; round < 1500; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    if (bytes.starts_with("%PDF") && round % 50 != 0) continue;  // a process each
    for (size_t i = random() % 8; i > 0; --i) {
      const size_t at = random() % (bytes.size() + 1);
      if (random() % 2 == 0) {
        bytes.insert(at, 1, static_cast<char>(random()));
      } else if (at < bytes.size()) {
        bytes[at] = static_cast<char>(random());
      }
    }
    const auto document = read_document(names[random() % names.size()], bytes);
    if (!document.ok()) continue;
    ASSERT_TRUE(is_utf8(document->text)) << shown(bytes);
    for (const BreakPoint& point : document->breaks)
      ASSERT_LE(point.offset, document->text.size()) << shown(bytes);
    for (const Section& section : document->sections) ASSERT_LE(section.begin, document->text.size());
    for (const RowBlock& block : document->row_blocks) ASSERT_LE(block.end, document->text.size());
  }
}

}  // namespace
}  // namespace rhapsode::text
