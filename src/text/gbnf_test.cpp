#include "text/gbnf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rhapsode::text {
namespace {

using ::testing::HasSubstr;

std::string verdict(std::string_view grammar) {
  const Status status = check_gbnf(grammar, [](std::string_view name) { return name == "<|im_end|>"; });
  return status.ok() ? "ok" : status.error().message;
}

TEST(Gbnf, AcceptsTheNotation) {
  EXPECT_EQ(verdict("root ::= \"yes\" | \"no\""), "ok");
  EXPECT_EQ(
      verdict("# a comment\nroot ::= item+ ( \",\" item )*\r\nitem ::= [a-zA-Z0-9_-] [^\\]\\n]{2,5} # end\n"),
      "ok");
  EXPECT_EQ(
      verdict("root ::= (\n  \"a\" |\n  b?\n)\nb ::= . \"\\x41\\u00e9\\U0001F63A\\\"\" <[7]> !<|im_end|>"),
      "ok");
  EXPECT_EQ(verdict("root ::= \"\" | \"é\"{3} \"b\"{0,}"), "ok");
  EXPECT_EQ(verdict("root ::= ((\"x\"{100}){100}){100}"), "ok");
}

TEST(Gbnf, SaysWhereAGrammarIsWrong) {
  EXPECT_EQ(verdict("root = \"a\""), "grammar, line 1, column 6: expected '::='");
  EXPECT_EQ(verdict("root ::= \"a\n"),
            "grammar, line 2, column 1: the grammar ends inside a string or a [class]");
  EXPECT_EQ(verdict("root ::= (\"a\""), "grammar, line 1, column 14: expected ')'");
  EXPECT_EQ(verdict("root ::= a\n\na ::= b"),
            "grammar, line 3, column 7: rule 'b' is used but never defined");
  EXPECT_EQ(verdict("a ::= \"x\""), "grammar: there is no rule named 'root'");
  EXPECT_EQ(verdict(""), "grammar: there is no rule named 'root'");
  EXPECT_EQ(verdict("root ::= *"), "grammar, line 1, column 10: there is nothing to repeat before this");
  EXPECT_THAT(verdict("root ::= \"\\q\""), HasSubstr("unknown escape"));
  EXPECT_THAT(verdict("root ::= \"\\u12\""), HasSubstr("4 hex digits"));
  EXPECT_THAT(verdict("root ::= \"c\"{,2}"), HasSubstr("column 14: expected a number"));
  EXPECT_THAT(verdict("root ::= <|no|>"), HasSubstr("'<|no|>' is not one token"));
  EXPECT_THAT(verdict("root ::= \"a\" ]"), HasSubstr("end of the rule"));
}

TEST(Gbnf, RefusesWhatWouldExhaustOrCrashTheEngine) {
  EXPECT_THAT(verdict("root ::= \"x\"{5,2}"), HasSubstr("upper bound"));
  EXPECT_THAT(verdict("root ::= \"x\"{99999999999999999999}"), HasSubstr("repetitions"));
  EXPECT_THAT(verdict("root ::= ((\"x\"{0,100}){100}){100}"), HasSubstr("repetitions"));
  EXPECT_THAT(verdict("root ::= " + std::string(100000, '(')), HasSubstr("nest deeper"));
  EXPECT_THAT(verdict(std::string(2 << 20, ' ')), HasSubstr("bytes"));
  EXPECT_THAT(verdict(std::string_view("root ::= \"a\0\"", 13)), HasSubstr("not text"));
  EXPECT_THAT(verdict("root ::= \"\xE2\x82\""), HasSubstr("not text"));
}

}  // namespace
}  // namespace rhapsode::text
