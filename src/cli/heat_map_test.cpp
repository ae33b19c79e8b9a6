// The heat map: rows and shades, widths, marks of joined passages, terminals without UTF-8.
#include "cli/heat_map.h"

#include <gtest/gtest.h>

#include "cli/text_width.h"
#include "cli/trace_json.h"

namespace rhapsode::cli {
namespace {

TerminalTraits traits(int columns, bool utf8) {
  return {.out_is_terminal = true, .err_is_terminal = true, .columns = columns, .utf8 = utf8};
}

PassageInfo passage(int64_t id, const std::string& source) {
  PassageInfo info;
  info.id = id;
  info.source = source;
  return info;
}

TracedToken token(const std::string& text, int routing, std::vector<float> passages) {
  TracedToken token;
  token.text = text;
  token.routing = routing;
  token.passages = std::move(passages);
  token.question = 0.04f;
  token.prefix = 0.5f;
  return token;
}

AnswerTrace two_routings() {
  AnswerTrace trace;
  trace.passages = {passage(7, "a.md"), passage(9, "b.md")};
  trace.routings.resize(2);
  trace.routings[0].places = {{7, 30, 10, {}}};
  trace.routings[1].cause = RouteCause::kSentence;
  trace.routings[1].token = 3;
  trace.routings[1].joined = {9};
  trace.routings[1].places = {{7, 30, 10, {}}, {9, 40, 10, {}}};
  trace.tokens = {token("The", 0, {0.2f}), token(" bridge", 0, {0.1f}), token(".", 0, {0.0f}),
                  token(" Edda", 1, {0.05f, 0.2f}), token("", 1, {0, 0})};
  return trace;
}

TEST(HeatMap, AShadeBelowEachTokenAndALineWherePassagesJoined) {
  EXPECT_EQ(heat_map(two_routings(), Terminal(traits(60, false))),
            "                   % The bridge.\n"
            "a.md:1          10.0 ###:::::::\n"
            "question         4.0 ...........\n"
            "answer so far    0.0\n"
            "\n"
            "looked again before token 4 (sentence) + b.md:1\n"
            "                   %  Edda\n"
            "a.md:1           5.0 .....\n"
            "b.md:1          20.0 #####\n"
            "question         4.0 .....\n"
            "answer so far    0.0\n"
            "\n"
            "attention, mean of heads and layers; # is 20.00 % or more\n");
  EXPECT_NE(heat_map(two_routings(), Terminal(traits(60, true))).find("███▒▒▒▒▒▒▒\n"), std::string::npos);
}

TEST(HeatMap, LinesFitTheTerminalWhateverTheTokensAre) {
  AnswerTrace trace = two_routings();
  trace.passages[0].source = "a/very/long/path/to/a/document/somewhere/数字数字数字.md";
  trace.tokens.clear();
  for (int i = 0; i < 40; ++i) trace.tokens.push_back(token(" token" + std::to_string(i), 0, {0.1f}));
  trace.tokens.push_back(token(std::string(300, 'x'), 0, {0.2f}));
  trace.tokens.push_back(token("\x1b[2J\n\t", 0, {0.2f}));
  // A character of three bytes in three tokens is one cell.
  for (const char* byte : {"\xe6", "\x95", "\xb0"}) trace.tokens.push_back(token(byte, 0, {0.1f}));
  for (const bool utf8 : {true, false}) {
    for (const int columns : {40, 57, 80, 200}) {
      const std::string text = heat_map(trace, Terminal(traits(columns, utf8)));
      EXPECT_EQ(text.find('\x1b'), std::string::npos);
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = text.find('\n', begin);
        const std::string line = text.substr(begin, end - begin);
        EXPECT_LE(display_width(line), std::max(columns, 60)) << line;
        if (!utf8) {
          for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
          for (const char c : line) EXPECT_LT(static_cast<unsigned char>(c), 0x7f) << line;
        }
        begin = end + 1;
      }
      EXPECT_EQ(text.find("数\n") != std::string::npos, utf8) << text;
    }
  }
}

TEST(HeatMap, WhatJoinedAtTheAnswersEndIsNamed) {
  AnswerTrace trace = two_routings();
  trace.tokens[3].text.clear();  // the end-of-turn token
  const std::string text = heat_map(trace, Terminal(traits(60, false)));
  EXPECT_NE(text.find("\n\nlooked again before token 4 (sentence) + b.md:1\nattention"), std::string::npos)
      << text;
}

TEST(HeatMap, OfNothingMeasuredThereIsNone) {
  AnswerTrace trace = two_routings();
  trace.tokens.clear();
  EXPECT_EQ(heat_map(trace, Terminal(traits(60, true))), "");
  EXPECT_EQ(heat_map({}, Terminal(traits(60, true))), "");
}

TEST(TraceJson, HasEveryFieldOfItsFormat) {
  Answer answer;
  answer.text = "The bridge. Edda";
  EXPECT_TRUE(trace_json("Who?", answer, {}).is_null());
  answer.trace = two_routings();
  answer.trace->routings[0].found.resize(1);
  answer.trace->routings[0].found[0].link = PassageLink{3, "edda"};
  const Json json = trace_json("Who?", answer, {});
  EXPECT_EQ(json["format"], "rhapsode-answer-trace");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["question"], "Who?");
  EXPECT_EQ(json["routings"][0]["found"][0]["link"]["mention"], "edda");
  EXPECT_TRUE(json["routings"][0]["found"][0]["judged"].is_null());
  EXPECT_EQ(json["routings"][1]["cause"], "sentence");
  EXPECT_EQ(json["routings"][1]["joined"], Json::array({9}));
  EXPECT_EQ(json["routings"][1]["places"][1]["position"], 40);
  EXPECT_EQ(json["tokens"].size(), 5u);
  EXPECT_EQ(json["tokens"][3]["attention"]["passages"][1], 0.2);
  // Bytes of a token need not be a character.
  answer.trace->tokens[0].text = "\xe6";
  EXPECT_NE(to_text(trace_json("Who?", answer, {})).find("\xef\xbf\xbd"), std::string::npos);
}

TEST(TraceJson, FilesThatCannotBeWrittenAreRefusedBeforeTheQuestion) {
  EXPECT_TRUE(check_trace_file("").ok());
  EXPECT_TRUE(check_trace_file("trace.json").ok());
  EXPECT_FALSE(check_trace_file("-").ok());
  EXPECT_FALSE(check_trace_file("/no/such/folder/trace.json").ok());
  EXPECT_FALSE(check_trace_file(".").ok());
}

}  // namespace
}  // namespace rhapsode::cli
