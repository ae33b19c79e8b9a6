#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "text/json_records.h"
#include "text/readers.h"

namespace rhapsode::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Document messages(const std::string& text) {
  auto document = read_messages("chat.jsonl", text);
  EXPECT_TRUE(document.ok()) << document.error().message;
  return *std::move(document);
}

TEST(MessagesReader, JsonLinesBecomeLinesOfAuthorTimeAndText) {
  const Document document = messages(
      R"({"role":"user","time":"2024-05-01T10:00:00Z","text":"Where is the key?"})"
      "\n"
      R"({"role":"assistant","timestamp":1714557660,"content":[{"type":"text","text":"Under\nthe mat."}]})"
      "\n");
  EXPECT_EQ(
      document.text,
      "user (2024-05-01T10:00:00Z): Where is the key?\n\nassistant (2024-05-01T10:01:00Z): Under\nthe mat.");
  EXPECT_EQ(document.date, "2024-05-01T10:00:00Z");
  EXPECT_TRUE(document.extracted);
  ASSERT_EQ(document.breaks.size(), 2u);
  EXPECT_EQ(document.text.substr(document.breaks[1].offset, 9), "assistant");
}

TEST(MessagesReader, KnowsTheSynonymsOfExports) {
  EXPECT_EQ(
      messages(R"([{"from":"Ada","date":"5 Jul 2001","body":"Hi"},{"sender":{"name":"Bob"},"message":"Ho"}])")
          .text,
      "Ada (2001-07-05): Hi\n\nBob: Ho");
  EXPECT_EQ(
      messages(R"({"type":"x","timestamp":"2024-05-01","message":{"role":"user","content":"Hi"}})").text,
      "user (2024-05-01): Hi");
  EXPECT_EQ(messages(R"({"user":"U1","ts":"1355517523.000005","text":"slack"})").text,
            "U1 (2012-12-14T20:38:43Z): slack");
}

TEST(MessagesReader, ConversationsInRecordsAreSections) {
  const Document document = messages(
      R"([{"title":"Keys","turns":[[{"role":"user","content":"a"},{"role":"bot","content":"b"}]]},
          {"title":"Boxes","messages":[{"role":"user","content":"c"}]}])");
  EXPECT_EQ(document.text, "user: a\n\nbot: b\n\nuser: c");
  ASSERT_EQ(document.sections.size(), 2u);
  EXPECT_EQ(document.sections[1].path, "Boxes");
  EXPECT_EQ(document.text.substr(document.sections[1].begin), "user: c");
}

TEST(MessagesReader, OtherObjectsStayUnchangedAsRows) {
  const std::string text = "{\"question\":\"q1\"}\n{\"question\":\"q2\"}\n";
  const Document document = messages(text);
  EXPECT_EQ(document.text, text);
  EXPECT_FALSE(document.extracted);
  ASSERT_EQ(document.row_blocks.size(), 1u);
  EXPECT_THAT(document.row_blocks[0].rows, ElementsAre(0, 18));
}

TEST(MessagesReader, ABadLineIsKeptAndReported) {
  const Document document =
      messages("{\"role\":\"a\",\"text\":\"x\"}\n{\"role\": broken\n{\"role\":\"b\",\"text\":\"y\"}\n");
  EXPECT_EQ(document.text, "a: x\n\n{\"role\": broken\n\nb: y");
  EXPECT_EQ(document.warnings.size(), 1u);
}

TEST(MessagesReader, IsToldFromOtherJson) {
  EXPECT_TRUE(is_messages("{\"role\":\"a\",\"text\":\"x\"}\n"));
  EXPECT_TRUE(is_messages("\xEF\xBB\xBF[{\"a\":1},\n{\"a\":2}]"));
  EXPECT_TRUE(is_messages("{\"a\":1}\n{\"a\":2}\n"));
  EXPECT_FALSE(is_messages("{\"name\":\"package\",\"version\":1}"));
  EXPECT_FALSE(is_messages("{\n  \"name\": \"package\"\n}\n"));
  EXPECT_FALSE(is_messages("[1, 2, 3]"));
  EXPECT_FALSE(is_messages("plain text"));
  EXPECT_FALSE(is_messages(""));
}

TEST(MessagesReader, HostileInputEndsSoon) {
  EXPECT_FALSE(is_messages(std::string(1000000, '[')));
  EXPECT_FALSE(is_messages(std::string(1000000, '{')));
  messages(std::string(1000000, '['));
  messages("[" + std::string(500000, '{'));
  std::string deep = "{\"role\":\"a\",\"text\":";
  for (int i = 0; i < 200000; ++i) deep += "[";
  messages(deep + "\n" + deep);
  std::mt19937 random(6);
  const std::string signs = "{}[]\",:\\\n a1\xFF";
  for (int round = 0; round < 500; ++round) {
    std::string text = round % 2 ? "[" : "{";
    for (size_t i = random() % 200; i > 0; --i) text += signs[random() % signs.size()];
    JsonRecords records(text);
    size_t at = 0;
    for (JsonRecords::Record record; records.next(record);) {
      ASSERT_GE(record.begin, at);
      ASSERT_GT(record.end, record.begin);
      at = record.end;
    }
    messages(text);
  }
}

}  // namespace
}  // namespace rhapsode::text
