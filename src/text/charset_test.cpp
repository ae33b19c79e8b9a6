#include "text/charset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/text_check.h"

namespace rhapsode::text {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;
using testing::IsEmpty;

std::string utf16(std::string_view ascii, bool little, bool mark) {
  std::string out;
  if (mark) out = little ? "\xFF\xFE" : "\xFE\xFF";
  for (const char c : ascii) {
    out += little ? c : '\0';
    out += little ? '\0' : c;
  }
  return out;
}

TEST(Charset, WellFormedUtf8IsUntouched) {
  const std::string text = "\xEF\xBB\xBFna\u00EFve \u5730\u56F3 co\u00ADop";
  const auto decoded = decode_text(text, "iso-8859-1");
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->text, text);
  EXPECT_FALSE(decoded->changed);
  EXPECT_THAT(decoded->warning, IsEmpty());
}

TEST(Charset, Utf16IsReadWithAndWithoutItsMark) {
  for (const bool little : {true, false}) {
    for (const bool mark : {true, false}) {
      const auto decoded = decode_text(utf16("Hello, world.\nTwo lines.", little, mark), "");
      ASSERT_TRUE(decoded.ok());
      EXPECT_EQ(decoded->text, "Hello, world.\nTwo lines.");
      EXPECT_TRUE(decoded->changed);
      EXPECT_THAT(decoded->warning, IsEmpty());
    }
  }
  EXPECT_EQ(decode_text("\xFF\xFE\0\0h\0\0\0i\0\0\0"s, "")->text, "hi");
  // A unit that is cut off, and half a surrogate pair.
  const auto broken = decode_text("\xFF\xFEh\0\x00\xD8i\0x"s, "");
  ASSERT_TRUE(broken.ok());
  EXPECT_TRUE(is_utf8(broken->text));
  EXPECT_THAT(broken->warning, HasSubstr("2 places"));
}

TEST(Charset, WhatIsDeclaredCountsAndWindows1252IsTheLastGuess) {
  const auto greek = decode_text("\xE1\xE2\xE3", "ISO-8859-7");
  ASSERT_TRUE(greek.ok());
  EXPECT_EQ(greek->text, "\u03B1\u03B2\u03B3");
  const auto latin = decode_text("caf\xE9 \x93quoted\x94", "latin1");  // as browsers: windows-1252
  EXPECT_EQ(latin->text, "caf\u00E9 \u201Cquoted\u201D");
  EXPECT_THAT(latin->warning, IsEmpty());
  const auto guessed = decode_text("caf\xE9", "");
  EXPECT_EQ(guessed->text, "caf\u00E9");
  EXPECT_THAT(guessed->warning, HasSubstr("windows-1252"));
  EXPECT_TRUE(guessed->changed);
  for (const std::string& hostile :
       {"../../x"s, "UTF-8//TRANSLIT"s, std::string(5000, 'A'), "utf-7"s, "\0"s}) {
    EXPECT_EQ(decode_text("caf\xE9", hostile)->text, "caf\u00E9") << hostile.substr(0, 20);
  }
  EXPECT_EQ(decode_text("\x1B$B0&\x1B(B", "iso-2022-jp")->text, "\u611B");
}

TEST(Charset, DeclarationsAreFoundInHtmlAndXml) {
  EXPECT_EQ(declared_charset("<html><head><META charset=\"Shift_JIS\">"), "shift_jis");
  EXPECT_EQ(
      declared_charset("<meta name=a><meta http-equiv=Content-Type content='text/html; charset=koi8-r'>"),
      "koi8-r");
  EXPECT_EQ(declared_charset("<?xml version='1.0' encoding='iso-8859-2'?><a/>"), "iso-8859-2");
  EXPECT_EQ(declared_charset("<?xml version='1.0'?><a encoding='x'/>"), "");
  EXPECT_EQ(declared_charset("the charset of <meta"), "");
  EXPECT_EQ(declared_charset("<meta charset="), "");
}

TEST(Charset, BinaryIsToldFromText) {
  EXPECT_FALSE(looks_binary("plain text\twith tabs\r\n\fand pages"));
  EXPECT_FALSE(looks_binary("caf\xE9 au lait"));
  EXPECT_FALSE(looks_binary(utf16("some text", true, false)));
  EXPECT_FALSE(looks_binary("\x1B[31mred\x1B[0m log"));
  EXPECT_FALSE(looks_binary("cut inside a code point \xE5\x9C"));
  EXPECT_TRUE(looks_binary("text\0with a NUL"s));
  EXPECT_TRUE(looks_binary("\x89PNG\r\n\x1A\n\0\0\0\rIHDR"s));
  std::mt19937 random(7);
  std::string noise;
  for (int i = 0; i < 4096; ++i)
    noise += static_cast<char>(1 + random() % 255);  // compressed data, without NULs
  EXPECT_TRUE(looks_binary(noise));
  std::string samples;  // 16-bit sound is no UTF-16
  for (int i = 0; i < 4096; ++i) samples += static_cast<char>(random() % 3 == 0 ? 0 : random());
  EXPECT_TRUE(looks_binary(samples));
}

TEST(Charset, NoTextIsSeen) {
  for (const std::string& bytes :
       {""s, " \n\t"s, std::string(100, '\0'), "\xEF\xBB\xBF"s, "\xFF\xFE"s, "\xFE\xFF\0 \0\n"s}) {
    EXPECT_TRUE(holds_no_text(bytes));
    EXPECT_FALSE(looks_binary(bytes));
  }
  EXPECT_FALSE(holds_no_text("x"));
}

}  // namespace
}  // namespace rhapsode::text
