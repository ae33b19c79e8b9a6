#include "text/utf8_gate.h"

#include <gtest/gtest.h>

#include <random>

namespace rhapsode::text {
namespace {

std::string one_by_one(const std::string& bytes) {
  Utf8Gate gate;
  std::string out;
  for (const char c : bytes) gate.feed({&c, 1}, out);
  gate.finish(out);
  return out;
}

TEST(Utf8Gate, ValidTextPassesUnchanged) {
  for (const std::string text : {"", "plain", "ёжик 😺 数", "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(text));
    EXPECT_EQ(one_by_one(text), text);
  }
}

TEST(Utf8Gate, BrokenSequencesBecomeOneReplacementEach) {
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"\x80", r},             // a continuation alone
      {"\xC0\xAF", r + r},     // overlong: neither byte begins a character
      {"\xE2\x82", r},         // cut off
      {"\xE2\x82z", r + "z"},  // cut off, then text
      {"\xF0\x9F\x98\xF0\x9F\x98\xBA", r + "😺"},
      {"\xED\xA0\x80", r + r + r},          // a surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // over U+10FFFF
      {"\xFF\xFE", r + r},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(to_valid_utf8(bytes), expected);
    EXPECT_EQ(one_by_one(bytes), expected);
    EXPECT_FALSE(is_valid_utf8(bytes));
  }
}

TEST(Utf8Gate, AnyBytesComeOutValidHoweverTheyAreCut) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : 0x80 + random() % 128);
    const std::string whole = to_valid_utf8(bytes);
    ASSERT_EQ(one_by_one(bytes), whole);
    ASSERT_TRUE(is_valid_utf8(whole));
  }
}

}  // namespace
}  // namespace rhapsode::text
