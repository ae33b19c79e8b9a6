#include "base/sha256.h"

#include <gtest/gtest.h>

#include "base/text_check.h"

namespace rhapsode {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// FIPS 180-4 examples.
TEST(Sha256, KnownVectors) {
  EXPECT_EQ(*sha256(bytes("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(*sha256(bytes("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(*sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(*sha256(bytes(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSame) {
  const std::string text(100000, 'x');
  Sha256 hash;
  for (size_t at = 0; at < text.size(); at += 777)
    hash.update(bytes(text).subspan(at, std::min<size_t>(777, text.size() - at)));
  EXPECT_EQ(*hash.finish(), *sha256(bytes(text)));
  EXPECT_FALSE(hash.finish().ok()) << "a finished hash cannot be finished again";
}

TEST(Sha256, Form) {
  EXPECT_TRUE(is_sha256(*sha256(bytes("abc"))));
  EXPECT_FALSE(is_sha256("ABC"));
  EXPECT_FALSE(is_sha256(std::string(64, 'g')));
}

TEST(TextCheck, Utf8) {
  for (const char* good : {"", "a", "Grüße ☃ 😺", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x98", "a\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << shown(bad);
  }
}

TEST(TextCheck, ShownIsSafe) {
  EXPECT_EQ(shown("a\x1b[1m\n"), "a\\x1b[1m\\x0a");
  EXPECT_EQ(shown("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace rhapsode
