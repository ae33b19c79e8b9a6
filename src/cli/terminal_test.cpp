// Widths, tables, colours and numbers as people see them.
#include "cli/terminal.h"

#include <gtest/gtest.h>

#include "cli/quantity.h"
#include "cli/table.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

TerminalTraits plain() {
  return {};
}
TerminalTraits colourful(int columns) {
  return {.out_is_terminal = true,
          .err_is_terminal = true,
          .colours = true,
          .can_erase = true,
          .columns = columns};
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("ёжик"), 4);
  EXPECT_EQ(display_width("数字"), 4);
  EXPECT_EQ(display_width("😺"), 2);
  EXPECT_EQ(display_width("e\u0301"), 1);  // e and a combining accent
  EXPECT_EQ(display_width("한글"), 4);
  EXPECT_EQ(display_width("ｆｕｌｌ"), 8);
  EXPECT_EQ(display_width("\xff\xfe"), 2);  // one U+FFFD a byte
  EXPECT_EQ(display_width(""), 0);
}

TEST(ClipText, CutsAtColumns) {
  EXPECT_EQ(clip_text("abcdef", 6), "abcdef");
  EXPECT_EQ(clip_text("abcdef", 4), "abc…");
  EXPECT_EQ(clip_text("数字数字", 4), "数…");  // a wide character is never cut in two
  EXPECT_EQ(clip_text("abc", 0), "");
}

TEST(ClipFront, KeepsTheEnd) {
  EXPECT_EQ(clip_front("docs/guide.md", 13), "docs/guide.md");
  EXPECT_EQ(clip_front("docs/guide.md", 9), "…guide.md");
  EXPECT_EQ(clip_front("数字数字", 4), "…字");
  EXPECT_EQ(clip_front("abc", 0), "");
}

TEST(WrapText, BreaksAtSpacesAndInsideLongWords) {
  EXPECT_EQ(wrap_text("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrap_text("a abcdefghij", 4, 1), "a\n abcd\n efgh\n ij");
  EXPECT_EQ(wrap_text("数字数字", 5, 0), "数字\n数字");
  EXPECT_EQ(wrap_text("", 5, 0), "");
}

TEST(Printable, DisarmsControls) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a␛[31mb");
  EXPECT_EQ(printable("a\r\bb\x7f"), "a␍␈b␡");
  EXPECT_EQ(printable("tab\tline\n"), "tab\tline\n");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\uFFFD31m");                        // C1 control sequence introducer
  EXPECT_EQ(printable("a\u202Eb"), "a\uFFFDb");  // right-to-left override
  EXPECT_EQ(printable("bad \xc3 end"), "bad \uFFFD end");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(printable("\xe2\x82\xac 😺"), "€ 😺");
}

TEST(Table, AlignsWideCharacters) {
  const Terminal terminal(plain());
  Table table({{"name"}, {"n", true}, {"note"}});
  table.add({"数字", "7", "x"});
  table.add({"ab", "1234", "line\nbreak\x1b"});
  EXPECT_EQ(table.render(terminal),
            "name     n  note\n"
            "数字     7  x\n"
            "ab    1234  line⏎break␛\n");
}

TEST(Table, ColoursAndClipsOnlyOnTerminals) {
  Table table({{"key"}, {"value"}});
  table.add({"k", std::string(60, 'v')});
  const Terminal narrow(colourful(40));
  const std::string text = table.render(narrow);
  EXPECT_TRUE(text.starts_with("\x1b[1mkey  value\x1b[0m\n")) << text;
  EXPECT_NE(text.find("…"), std::string::npos);
  const Terminal pipe(plain());
  EXPECT_EQ(table.render(pipe), "key  value\nk    " + std::string(60, 'v') + "\n");
}

TEST(Table, PathsLoseTheirBeginningFirst) {
  Table table({{"source", false, true}, {"n", true}, {"tags"}});
  table.add({"docs/a/very/long/path/to/some/guide.md", "7", "a"});
  TerminalTraits traits = colourful(40);
  traits.colours = false;
  EXPECT_EQ(table.render(Terminal(traits)),
            "source                           n  tags\n"
            "…ery/long/path/to/some/guide.md  7  a\n");
  EXPECT_EQ(table.render(Terminal(plain())),
            "source                                  n  tags\n"
            "docs/a/very/long/path/to/some/guide.md  7  a\n");
}

TEST(Table, NoLineIsWiderThanTheTerminal) {
  Table table({{"source", false, true}, {"some column", true}, {"another one", true}, {"and a third"}});
  table.add({"docs/数字/guide.md", "1", "2", "x, y"});
  const std::string text = table.render(Terminal({.out_is_terminal = true, .columns = 40}));
  EXPECT_EQ(text, "source        some column  another one …\n…字/guide.md            1            2 …\n");
}

TEST(Paint, EachStreamForItself) {
  TerminalTraits traits = colourful(80);
  traits.out_is_terminal = false;
  const Terminal terminal(traits);
  EXPECT_EQ(terminal.paint(Style::kRed, "x"), "x");
  EXPECT_EQ(terminal.paint_err(Style::kRed, "x"), "\x1b[31mx\x1b[0m");
}

TEST(RenderPairs, AlignsValues) {
  const Terminal terminal(plain());
  EXPECT_EQ(render_pairs({{"a", "1"}, {"long", "2"}}, terminal), "a     1\nlong  2\n");
}

TEST(Quantity, ReadsWell) {
  EXPECT_EQ(show_bytes(0), "0 B");
  EXPECT_EQ(show_bytes(999), "999 B");
  EXPECT_EQ(show_bytes(1500), "1.5 kB");
  EXPECT_EQ(show_bytes(98362432), "98.4 MB");
  EXPECT_EQ(show_bytes(491400064), "491 MB");
  EXPECT_EQ(show_bytes(999999999), "1.0 GB");
  EXPECT_EQ(show_count(134515008), "135 M");
  EXPECT_EQ(show_count(1777088000), "1.8 B");
  EXPECT_EQ(show_whole(0), "0");
  EXPECT_EQ(show_whole(999), "999");
  EXPECT_EQ(show_whole(1234567), "1,234,567");
  EXPECT_EQ(show_rate(66.24), "66.2");
  EXPECT_EQ(show_rate(1240.4), "1,240");
  EXPECT_EQ(show_duration(48.2), "48 s");
  EXPECT_EQ(show_duration(125), "2:05 min");
  EXPECT_EQ(show_duration(4200), "1:10 h");
}

}  // namespace
}  // namespace rhapsode::cli
