#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/test_models.h"
#include "text/tokenizer.h"

namespace rhapsode::text {
namespace {

StreamDecoder make(std::vector<std::string> stops) {
  auto result = StreamDecoder::make(std::move(stops));
  if (!result.ok()) throw std::runtime_error(result.error().message);
  return *std::move(result);
}

struct Streamed {
  std::vector<std::string> events;
  std::string text;
  std::optional<size_t> stop;
};

Streamed stream(StreamDecoder decoder, const std::vector<std::string>& pieces) {
  Streamed out;
  for (const std::string& piece : pieces) out.events.push_back(decoder.feed(piece));
  out.events.push_back(decoder.finish());
  for (const std::string& event : out.events) {
    EXPECT_TRUE(is_valid_utf8(event)) << event;
    out.text += event;
  }
  out.stop = decoder.matched_stop();
  return out;
}

std::vector<std::string> cut(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::min<size_t>(1 + random() % 4, text.size() - at);
    pieces.push_back(text.substr(at, length));
    at += length;
  }
  return pieces;
}

// What the decoder must give, written the slow way.
std::string expected_text(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StreamDecoder, T1CharactersSplitOverTokensNeverTear) {
  const std::string text = "ёжик 😺 数";
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const Streamed out = stream(make({}), cut(text, random));
    EXPECT_EQ(out.text, text);
    for (const std::string& event : out.events) EXPECT_EQ(event.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(StreamDecoder, T1TokensOfARealVocabularyStreamTheSameText) {
  RH_REQUIRE_MODEL(path, "smollm2-135m");
  auto tokenizer = Tokenizer::load(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text = "ёжик 😺 数";
  auto ids = (*tokenizer)->encode(text);
  ASSERT_TRUE(ids.ok());
  std::vector<std::string> pieces;
  bool splits = false;
  for (const int32_t id : *ids) {
    pieces.push_back((*tokenizer)->piece(id));
    splits = splits || !is_valid_utf8(pieces.back());
  }
  EXPECT_TRUE(splits) << "this text no longer splits a character over tokens";
  EXPECT_EQ(stream(make({}), pieces).text, text);
}

TEST(StreamDecoder, T1AnIncompleteTailIsReplacedAtTheEnd) {
  EXPECT_EQ(stream(make({}), {"a", "\xF0\x9F\x98"}).text, "a\xEF\xBF\xBD");
  StreamDecoder decoder = make({});
  EXPECT_EQ(decoder.feed("a\xF0\x9F"), "a");
  EXPECT_EQ(decoder.feed("\x98\xBA"), "😺");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, T3AStopStringAcrossTokensLeaksNothing) {
  const std::vector<std::vector<std::string>> cuts = {
      {"red", " green", " blue"}, {"red green blue"}, {"red gre", "e", "n", " ", "b", "l", "ue"}};
  for (const auto& pieces : cuts) {
    const Streamed out = stream(make({"een bl"}), pieces);
    EXPECT_EQ(out.text, "red gr");
    EXPECT_EQ(out.stop, 0u);
  }
}

TEST(StreamDecoder, TextThatOnlyLooksLikeAStopIsReleased) {
  StreamDecoder decoder = make({"een bl"});
  EXPECT_EQ(decoder.feed("green b"), "gr");
  EXPECT_EQ(decoder.feed("ox"), "een box");
  EXPECT_EQ(decoder.feed(" een"), " ");
  EXPECT_EQ(decoder.finish(), "een");
  EXPECT_FALSE(decoder.stopped());
}

TEST(StreamDecoder, ReportsWhichStopMatchedAndEmitsNothingAfterIt) {
  StreamDecoder decoder = make({"zzz", "###", "\n\nUser"});
  EXPECT_EQ(decoder.feed("answer\n"), "answer");
  EXPECT_EQ(decoder.feed("\nUser: more"), "");
  EXPECT_EQ(decoder.matched_stop(), 2u);
  EXPECT_EQ(decoder.feed("text"), "");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, OfStopsThatEndTogetherTheLongestCounts) {
  EXPECT_EQ(stream(make({"c", "abc"}), {"xabc"}).text, "x");
  EXPECT_EQ(stream(make({"c", "abc"}), {"xabc"}).stop, 1u);
  EXPECT_EQ(stream(make({"b", "abc"}), {"xabc"}).text, "xa");
}

TEST(StreamDecoder, StopsOfSeveralBytesACharacterCutAtCharacters) {
  EXPECT_EQ(stream(make({"数"}), {"ёж\xE6", "\x95", "\xB0x"}).text, "ёж");
  EXPECT_EQ(stream(make({"数据"}), {"数", "学"}).text, "数学");
}

TEST(StreamDecoder, AgreesWithTheSlowWayOnRandomTextsStopsAndCuts) {
  std::mt19937 random(2);
  const std::string letters[] = {"a", "b", "é", "€"};
  const auto word = [&](size_t most) {
    std::string out;
    for (size_t n = 1 + random() % most; n > 0; --n) out += letters[random() % 4];
    return out;
  };
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(5));
    const std::string text = word(30);
    const Streamed out = stream(make(stops), cut(text, random));
    ASSERT_EQ(out.text, expected_text(text, stops));
    ASSERT_EQ(out.stop.has_value(), out.text.size() != text.size());
  }
}

TEST(StreamDecoder, RefusesStopsThatCannotMatch) {
  EXPECT_FALSE(StreamDecoder::make({"ok", ""}).ok());
  EXPECT_FALSE(StreamDecoder::make({"\xE2\x82"}).ok());
}

}  // namespace
}  // namespace rhapsode::text
