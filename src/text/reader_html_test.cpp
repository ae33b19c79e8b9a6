#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "text/extractors.h"
#include "text/html_tree.h"

namespace rhapsode::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Document read(std::string_view html) {
  auto document = read_html("page.html", html);
  EXPECT_TRUE(document.ok()) << (document.ok() ? "" : document.error().message);
  return document.ok() ? std::move(*document) : Document{};
}

std::vector<std::string> paths(const Document& document) {
  std::vector<std::string> out;
  for (const Section& section : document.sections) out.push_back(section.path);
  return out;
}

TEST(ReaderHtml, TextHasParagraphsListsAndSections) {
  const Document document = read(
      "<html><head><title>A  Page</title><style>p{}</style></head><body>"
      "<h1>Top</h1><p>One <b>bold</b>\n word.</p><p>Two<br>lines</p>"
      "<h2>List</h2><ul><li>a<li>b<ol><li>x<li>y</ol></ul><h2>End</h2>last"
      "<script>var hidden = 1;</script></body></html>");
  EXPECT_EQ(document.text,
            "Top\n\nOne bold word.\n\nTwo\nlines\n\nList\n\n- a\n- b\n  1. x\n  2. y\n\nEnd\n\nlast");
  EXPECT_EQ(document.title, "A Page");
  EXPECT_TRUE(document.extracted);
  EXPECT_EQ(document.kind, DocumentKind::kHtml);
  EXPECT_THAT(paths(document), ElementsAre("Top", "Top > List", "Top > End"));
  EXPECT_EQ(document.text.substr(document.sections[1].begin, 4), "List");
  for (const BreakPoint& point : document.breaks) EXPECT_EQ(document.text[point.offset - 1], '\n');
}

TEST(ReaderHtml, ScriptsStylesAndMenusAreNoText) {  // case I10
  const Document document = read(
      "<body><nav>Home | About</nav><header>Site name</header><style>.a{}</style>"
      "<p>The co\u00ADop text.</p><script>alert(1)</script><noscript>enable it</noscript>"
      "<div style='display: none'>secret</div><p hidden>gone</p><template><p>tpl</p></template>"
      "<footer>Imprint</footer></body>");
  EXPECT_EQ(document.text, "The co\u00ADop text.");
}

TEST(ReaderHtml, TheMainPartIsChosenUnlessItIsEmpty) {
  EXPECT_EQ(
      read("<body><div>menu menu menu</div><main><nav>crumbs</nav><header>Title</header><p>text</p></main>")
          .text,
      "Title\n\ntext");
  EXPECT_EQ(read("<body><p>around</p><article>story of some length</article></body>").text,
            "story of some length");
  EXPECT_EQ(read("<body><p>outer text</p><main></main></body>").text, "outer text");
  EXPECT_EQ(read("<body><article>one</article><article>two</article></body>").text, "one\n\ntwo");
  EXPECT_EQ(read("<body><nav>only a menu</nav></body>").text, "only a menu");
}

TEST(ReaderHtml, TablesAreRowsAndLayoutTablesAreNot) {
  const Document document = read(
      "<p>Before</p><table><caption>Prices</caption><thead><tr><th>Item</th><th>Price</th></tr></thead>"
      "<tbody><tr><td><p>Tea</p></td><td>3 "
      "<i>EUR</i></td></tr><tr><td>Milk</td><td></td></tr></tbody></table>after");
  EXPECT_EQ(document.text, "Before\n\nPrices\nItem | Price\nTea | 3 EUR\nMilk |\n\nafter");
  ASSERT_EQ(document.row_blocks.size(), 1u);
  const RowBlock& block = document.row_blocks[0];
  EXPECT_EQ(block.lead, "Item | Price");
  ASSERT_EQ(block.rows.size(), 3u);
  EXPECT_EQ(block.begin, block.rows[0]);
  EXPECT_EQ(document.text.substr(block.rows[1], 3), "Tea");
  EXPECT_THAT(document.text.substr(block.begin, block.end - block.begin), testing::StartsWith("Item"));
  const Document layout =
      read("<table><tr><td>left<table><tr><td>a</td><td>b</td></tr></table></td><td>right</td></tr></table>");
  EXPECT_THAT(layout.text, HasSubstr("a | b"));
  EXPECT_THAT(layout.text, Not(HasSubstr("left |")));
}

TEST(ReaderHtml, PreformattedTextIsKept) {
  const Document document = read("<p>x</p><pre>def f():\n    return  1\n</pre><p>y</p>");
  EXPECT_EQ(document.text, "x\n\ndef f():\n    return  1\n\ny");
  ASSERT_EQ(document.row_blocks.size(), 1u);
  EXPECT_EQ(document.row_blocks[0].rows.size(), 2u);
}

TEST(ReaderHtml, FactsComeFromTheHead) {
  const Document document = read(
      "<head><meta property='og:title' content='OG'><meta name=Author content='A. B.'>"
      "<meta property='article:published_time' content='2024-05-01T10:00:00Z'></head><p>x");
  EXPECT_EQ(document.title, "OG");
  EXPECT_EQ(document.author, "A. B.");
  EXPECT_THAT(document.date, testing::StartsWith("2024-05-01"));
}

TEST(ReaderHtml, APageWithoutTextSaysSo) {
  for (const char* html : {"<html></html>", "<script>var a;</script>", "<p> </p>", "<!--"}) {
    const auto document = read_html("x.html", html);
    ASSERT_FALSE(document.ok()) << html << document->text;
    EXPECT_EQ(document.error().kind, ErrorKind::kNotFound);
    EXPECT_THAT(document.error().message, HasSubstr("no text"));
  }
}

TEST(ReaderHtml, DeepNestingCostsNeitherStackNorTime) {
  const auto begin = std::chrono::steady_clock::now();
  for (const char* tag : {"div", "b", "ul", "table", "blockquote", "span", "x-y"}) {
    std::string html = "<p>before</p>";
    for (int i = 0; i < 100'000; ++i) html += std::string("<") + tag + ">";
    html += "deep";
    for (int i = 0; i < 100'000; ++i) html += std::string("</") + tag + ">";
    const Document document = read(html + "<p>after</p>");
    EXPECT_THAT(document.text, HasSubstr("before")) << tag;
    EXPECT_THAT(document.text, HasSubstr("deep")) << tag;
    EXPECT_THAT(document.text, HasSubstr("after")) << tag;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(ReaderHtml, MultiplyingElementsEndAtALimit) {
  std::string html = "<p>";
  for (int i = 0; i < 500; ++i) html += "<b id=" + std::to_string(i) + ">";
  for (int i = 0; i < 20'000; ++i) html += "<p>x";
  const auto document = read_html("bomb.html", html);
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.error().kind, ErrorKind::kTooLarge);
  EXPECT_THAT(document.error().message, HasSubstr("bomb.html"));
}

TEST(ReaderHtml, FlatteningKeepsTextAndShallowTags) {
  EXPECT_EQ(flattened_html("<div><p>a</p><div>b</div></div>", 5), "");
  EXPECT_EQ(flattened_html("<div><div><div>x</div>y</div>z</div>", 2), "<div><div>xy</div>z</div>");
  EXPECT_EQ(flattened_html("<div><a href='>'><i title=\">\">x</i></a></div>", 1), "<div>x</div>");
  EXPECT_EQ(flattened_html("<div><script>'<div><div>'</script><!-- <div><div> --></div>", 1), "");
  EXPECT_EQ(flattened_html("<div><br><img><p>1 < 2<p><li></div>", 1), "");
}

}  // namespace
}  // namespace rhapsode::text
