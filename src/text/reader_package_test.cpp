#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/archive_writer.h"
#include "support/temporary_folder.h"
#include "text/reader.h"

namespace rhapsode::text {
namespace {

using test::Members;
using testing::ElementsAre;
using testing::HasSubstr;

class PackageTest : public test::TemporaryFolder {
 protected:
  std::string zip(const Members& members) {
    test::pack(folder_ / "package", test::Packing::kZip, members);
    return test::content_of(folder_ / "package");
  }
  std::string docx(const std::string& body, const Members& more = {}) {
    Members members = {{"[Content_Types].xml", "<Types/>"},
                       {"word/document.xml", "<?xml version=\"1.0\"?><w:document xmlns:w=\"w\"><w:body>" +
                                                 body + "</w:body></w:document>"}};
    members.insert(members.end(), more.begin(), more.end());
    return zip(members);
  }
  static std::string paragraph(const std::string& text, const std::string& properties = "") {
    return "<w:p><w:pPr>" + properties + "</w:pPr><w:r><w:t xml:space=\"preserve\">" + text +
           "</w:t></w:r></w:p>";
  }
};

std::vector<std::string> paths(const Document& document) {
  std::vector<std::string> out;
  for (const Section& section : document.sections) out.push_back(section.path);
  return out;
}

TEST_F(PackageTest, DocxHasParagraphsHeadingsListsAndTables) {
  const std::string row =
      "<w:tr><w:tc>" + paragraph("a") + paragraph("b") + "</w:tc><w:tc>" + paragraph("c") + "</w:tc></w:tr>";
  const std::string head = "<w:tr><w:trPr><w:tblHeader/></w:trPr><w:tc>" + paragraph("X") + "</w:tc><w:tc>" +
                           paragraph("Y") + "</w:tc></w:tr>";
  const auto document = read_document(
      "a.docx",
      docx(paragraph("Intro", "<w:pStyle w:val=\"Heading1\"/>") + paragraph("Hello &amp; ") +
               "<w:p><w:r><w:t>split "
               "</w:t></w:r><w:r><w:t>run</w:t></w:r><w:del><w:r><w:delText>old</w:delText>"
               "</w:r></w:del></w:p>" +
               paragraph("Deeper", "<w:pStyle w:val=\"S2\"/>") + paragraph("one", "<w:numPr/>") +
               paragraph("two", "<w:numPr/>") + "<w:tbl>" + head + row + "</w:tbl>" + paragraph("end"),
           {{"word/styles.xml",
             "<w:styles xmlns:w=\"w\"><w:style w:styleId=\"S2\"><w:name w:val=\"heading "
             "2\"/></w:style></w:styles>"},
            {"word/footnotes.xml", "<w:footnotes xmlns:w=\"w\"><w:footnote>" + paragraph("A note.") +
                                       "</w:footnote></w:footnotes>"},
            {"docProps/core.xml",
             "<c:p xmlns:c=\"c\"><dc:title>T</dc:title><dc:creator>C</dc:creator>"
             "<dcterms:created>2023-01-02T03:04:05Z</dcterms:created></c:p>"}}));
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->text,
            "Intro\n\nHello &\n\nsplit run\n\nDeeper\n\n- one\n- two\n\nX | Y\na b | c\n\nend\n\nA note.");
  EXPECT_THAT(paths(*document), ElementsAre("Intro", "Intro > Deeper"));
  ASSERT_EQ(document->row_blocks.size(), 1u);
  EXPECT_EQ(document->row_blocks[0].lead, "X | Y");
  EXPECT_EQ(document->title, "T");
  EXPECT_EQ(document->author, "C");
  EXPECT_THAT(document->date, testing::StartsWith("2023-01-02"));
  EXPECT_EQ(document->kind, DocumentKind::kDocx);
}

TEST_F(PackageTest, DamagedOfficeFilesAreErrorsWithTheirName) {
  const std::string whole =
      docx(paragraph("some text that is long enough to be compressed, compressed, compressed"));
  for (const size_t size : {size_t{10}, size_t{60}, whole.size() / 2, whole.size() - 30}) {
    const auto document = read_document("a.docx", whole.substr(0, size));
    // A zip without its directory may still give up its parts; what it gives must be sound then.
    if (document.ok()) {
      EXPECT_THAT(document->text, HasSubstr("compressed"));
    } else {
      EXPECT_THAT(document.error().message, HasSubstr("a.docx"));
    }
  }
  EXPECT_EQ(read_document("a.docx", docx("<w:p><unclosed")).error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(read_document("a.docx", docx(paragraph("  "))).error().kind, ErrorKind::kNotFound);
  EXPECT_EQ(read_document("a.docx", "just text").error().kind, ErrorKind::kCorrupt);
  EXPECT_EQ(read_document("a.xlsx", zip({{"[Content_Types].xml", "<T/>"}, {"xl/workbook.xml", "<w/>"}}))
                .error()
                .kind,
            ErrorKind::kUnsupported);
  EXPECT_EQ(read_document("a.zip", zip({{"a.txt", "a"}})).error().kind, ErrorKind::kUnsupported);
}

TEST_F(PackageTest, BombsEndAtALimit) {
  const auto spaces = read_document("bomb.docx", docx(paragraph(std::string(size_t{33} << 20, 'a'))));
  ASSERT_FALSE(spaces.ok());
  EXPECT_EQ(spaces.error().kind, ErrorKind::kTooLarge);
  EXPECT_THAT(spaces.error().message, HasSubstr("expands to more than"));
  std::string many;
  for (int i = 0; i < 1'400'000; ++i) many += "<a/>";
  EXPECT_EQ(read_document("bomb.docx", docx(many)).error().kind, ErrorKind::kTooLarge);
}

TEST_F(PackageTest, DeepXmlNeedsNoStack) {
  std::string open;
  std::string close;
  for (int i = 0; i < 100'000; ++i) {
    open += "<w:x>";
    close += "</w:x>";
  }
  const auto document = read_document("deep.docx", docx(open + paragraph("deep") + close));
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->text, "deep");
}

TEST_F(PackageTest, EpubChaptersComeInReadingOrder) {
  const auto chapter = [&](const std::string& title, const std::string& body) {
    return "<html><head><title>" + title + "</title></head><body>" + body + "</body></html>";
  };
  const auto document = read_document(
      "book.epub",
      zip({{"mimetype", "application/epub+zip"},
           {"OEBPS/text/two.xhtml", chapter("The Second", "<p>Beta.</p>")},
           {"OEBPS/text/one 1.xhtml",
            chapter("Book", "<h1>The First</h1><p>Alpha.</p><h2>Part</h2><p>More.</p>")},
           {"META-INF/container.xml",
            "<container><rootfiles><rootfile full-path=\"OEBPS/content.opf\"/></rootfiles></container>"},
           {"OEBPS/content.opf",
            "<package "
            "xmlns:dc=\"d\"><metadata><dc:title>Book</dc:title><dc:creator>A</dc:creator><dc:creator>B"
            "</dc:creator><dc:date>1999</dc:date></metadata><manifest>"
            "<item id=\"b\" href=\"text/two.xhtml\"/><item id=\"a\" href=\"text/one%201.xhtml\"/>"
            "<item id=\"c\" href=\"../gone.xhtml\"/></manifest>"
            "<spine><itemref idref=\"a\"/><itemref idref=\"b\"/><itemref idref=\"c\"/><itemref "
            "idref=\"x\"/></spine></package>"}}));
  ASSERT_TRUE(document.ok()) << document.error().message;
  EXPECT_EQ(document->text, "The First\n\nAlpha.\n\nPart\n\nMore.\n\nBeta.");
  EXPECT_THAT(paths(*document), ElementsAre("The First", "The First > Part", "The Second"));
  EXPECT_EQ(document->title, "Book");
  EXPECT_EQ(document->author, "A, B");
  EXPECT_EQ(document->date, "1999");
  EXPECT_THAT(document->warnings, ElementsAre("chapter gone.xhtml is missing or empty"));
}

TEST_F(PackageTest, BrokenBooksAreErrors) {
  const Members no_package = {{"mimetype", "application/epub+zip"},
                              {"META-INF/container.xml", "<container/>"}};
  const auto document = read_document("book.epub", zip(no_package));
  ASSERT_FALSE(document.ok());
  EXPECT_THAT(document.error().message, HasSubstr("book.epub"));
}

}  // namespace
}  // namespace rhapsode::text
