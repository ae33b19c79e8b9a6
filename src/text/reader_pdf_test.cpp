#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/pdf_writer.h"
#include "text/reader.h"

namespace rhapsode::text {
namespace {

using test::kPdfHelvetica;
using test::make_pdf;
using test::pdf_line;
using testing::ElementsAre;
using testing::HasSubstr;

bool has_pdftotext() {
  return std::system("pdftotext -v >/dev/null 2>&1") == 0;
}

class ReaderPdf : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_pdftotext()) GTEST_SKIP() << "pdftotext is not installed";
  }
};

TEST_F(ReaderPdf, ColumnsFollowOneAnother) {  // case I9
  const std::string page =
      pdf_line(72, 700, "The left column begins here") + pdf_line(330, 700, "The right column begins now") +
      pdf_line(72, 686, "and ends in its second line.") + pdf_line(330, 686, "and also has a second line.");
  const auto document = read_document("a.pdf", make_pdf({page}, kPdfHelvetica));
  ASSERT_TRUE(document.ok()) << document.error().message;
  const std::string& text = document->text;
  EXPECT_THAT(text, HasSubstr("The left column begins here\nand ends in its second line."));
  EXPECT_THAT(text, HasSubstr("The right column begins now\nand also has a second line."));
  EXPECT_LT(text.find("left column"), text.find("right column"));
  EXPECT_EQ(document->kind, DocumentKind::kPdf);
  EXPECT_TRUE(document->extracted);
}

TEST_F(ReaderPdf, LigaturesAreWholeWords) {  // case I9
  const std::string font =
      "/Subtype /Type1 /BaseFont /Helvetica /Encoding << /Type /Encoding /BaseEncoding /WinAnsiEncoding "
      "/Differences [1 /ffi /fl /ff /fi] >>";
  const auto document =
      read_document("a.pdf", make_pdf({pdf_line(72, 700, "o\\001ce \\002u\\003 \\004n")}, font));
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->text, "office fluff fin");
}

TEST_F(ReaderPdf, PagesAreCountedAndThoseWithoutTextWarn) {
  const auto document = read_document(
      "a.pdf", make_pdf({pdf_line(72, 700, "First page."), "", pdf_line(72, 700, "Third page."), "", "", ""},
                        kPdfHelvetica));
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->text, "First page.\n\nThird page.");
  ASSERT_EQ(document->page_starts.size(), 6u);
  EXPECT_EQ(document->page_starts[0], 0u);
  EXPECT_EQ(document->text.substr(document->page_starts[2]), "Third page.");
  EXPECT_THAT(document->warnings, ElementsAre("pages 2, 4-6 hold no text (an image?)"));
}

TEST_F(ReaderPdf, AScanIsNoSuccess) {  // case I9
  const auto document = read_document("scan.pdf", make_pdf({"", "0 0 100 100 re f"}, kPdfHelvetica));
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().kind, ErrorKind::kNotFound);
  EXPECT_THAT(document.error().message, HasSubstr("no text"));
}

TEST_F(ReaderPdf, AGarbledPageWarns) {  // case I10
  const std::string map =
      "/CIDInit /ProcSet findresource begin begincmap /CMapName /X def 1 begincodespacerange <00> <FF> "
      "endcodespacerange 1 beginbfrange <41> <5A> <E041> endbfrange endcmap end";
  const std::string font = std::string(kPdfHelvetica) + " /ToUnicode 4 0 R";
  const auto document = read_document(
      "a.pdf", make_pdf({pdf_line(72, 700, "ABCDEFGH IJKLMNOP")}, font,
                        {fmt::format("<< /Length {} >>\nstream\n{}\nendstream", map.size(), map)}));
  ASSERT_TRUE(document.ok()) << document.error().message;
  ASSERT_EQ(document->warnings.size(), 1u);
  EXPECT_THAT(document->warnings[0], HasSubstr("page 1: the text looks garbled"));
}

TEST_F(ReaderPdf, DamageIsAnError) {
  const std::string whole = make_pdf({pdf_line(72, 700, "text")}, kPdfHelvetica);
  for (const std::string& bytes :
       {std::string("%PDF-1.4"), std::string("%PDF-1.4\n") + std::string(5000, '<'), whole.substr(0, 60),
        std::string("%PDF-1.7\n\xFF\xFE\x00 garbage", 20)}) {
    const auto document = read_document("a.pdf", bytes);
    ASSERT_FALSE(document.ok());
    EXPECT_THAT(document.error().message, HasSubstr("a.pdf"));
  }
}

TEST(ReaderPdfProgram, AMissingProgramSaysWhatToInstall) {
  const char* path = std::getenv("PATH");
  const std::string saved = path == nullptr ? "" : path;
  ::setenv("PATH", "/nonexistent", 1);
  const auto document = read_document("a.pdf", make_pdf({pdf_line(72, 700, "x")}, kPdfHelvetica));
  ::setenv("PATH", saved.c_str(), 1);
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(document.error().message, HasSubstr("poppler-utils"));
}

}  // namespace
}  // namespace rhapsode::text
