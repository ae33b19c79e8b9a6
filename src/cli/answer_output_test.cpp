// Footnotes, scores and the sentences shown of passages.
#include "cli/answer_output.h"

#include <gtest/gtest.h>

#include "cli/snippet.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

TerminalTraits plain() {
  return {};
}
TerminalTraits terminal_of(int columns) {
  return {.out_is_terminal = true, .err_is_terminal = true, .columns = columns};
}

Citation citation(int n, const char* source, int line, int page, const char* quote) {
  Citation citation;
  citation.n = n;
  citation.source = source;
  citation.line = line;
  citation.page = page;
  citation.quote = quote;
  return citation;
}

TEST(Footnotes, OneLineEachInAPipe) {
  EXPECT_EQ(
      footnotes({citation(1, "docs/a.md", 12, 0, "Two\n lines."), citation(2, "b.pdf", 40, 3, "Say \"x\".")},
                Terminal(plain())),
      "[1] docs/a.md:12 \"Two lines.\"\n"
      "[2] b.pdf:40 (page 3) \"Say \"x\".\"\n");
}

TEST(Footnotes, WrappedOnATerminal) {
  const std::string text =
      footnotes({citation(1, "docs/a.md", 12, 0,
                          "A sentence of some length that does not fit into one line. 数字数字数字"
                          "数字数字数字数字数字数字数字数字数字数字数字数字数字数字数字数字")},
                Terminal(terminal_of(40)));
  EXPECT_TRUE(
      text.starts_with("[1] docs/a.md:12 \"A sentence of some\n    length that does not fit into one\n"))
      << text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(display_width(text.substr(begin, end - begin)), 40) << text;
    begin = end + 1;
  }
}

TEST(Footnotes, FileTextCannotDriveTheTerminal) {
  EXPECT_EQ(footnotes({citation(1, "a\x1b]0;x\x07", 1, 0, "q\x1b[2J")}, Terminal(terminal_of(80))),
            "[1] a␛]0;x␇:1 \"q␛[2J\"\n");
}

TEST(AnswerNumbers, NamesTheReasonOfAnotherPolicy) {
  Answer answer;
  answer.usage.cached_tokens = 2560;
  answer.usage.evaluated_tokens = 61;
  answer.usage.generated_tokens = 34;
  answer.timing.ttft_ms = 420;
  answer.timing.decode_tokens_per_s = 12.34;
  answer.policy = ReadPolicy::kReuse;
  answer.policy_reason = "the verdict allows it";
  const std::string start =
      "first token after 0.42 s (model loaded in 0.60 s) · 2,560 tokens reused, 61 evaluated · 34 tokens at "
      "12.3/s · ";
  EXPECT_EQ(answer_numbers(answer, 600), start + "reuse");
  answer.policy = ReadPolicy::kFull;
  answer.policy_reason = "no verdict for this model";
  EXPECT_EQ(answer_numbers(answer, 600), start + "full: no verdict for this model");
}

TEST(FoundText, SnippetOrWhole) {
  FoundPassage found;
  found.passage.source = "docs/a.md";
  found.passage.line = 7;
  found.passage.id = 3;
  found.passage.tokens = 20;
  found.passage.tier = KvTier::kDisk;
  found.text = "First one. The cache fills up.\nLast.";
  found.score = 1.5;
  const std::string head =
      " 1  docs/a.md:7\n    score 1.500 · latent 0.000 (z 0.00) · keywords 0.000 (z 0.00)\n"
      "    passage 3 · 20 tokens · KV on disk\n";
  EXPECT_EQ(found_text(1, found, "cache", false, Terminal(plain())), head + "    The cache fills up.\n");
  EXPECT_EQ(found_text(1, found, "cache", true, Terminal(plain())), head + found.text + "\n");
}

TEST(BestSentence, SharesMostWithTheQuestion) {
  const char* text =
      "It rains. The cache is filled on the first read! Why? Because of\nthe reader.\n\n# Title\n";
  EXPECT_EQ(best_sentence(text, "when is the CACHE filled"), "The cache is filled on the first read!");
  EXPECT_EQ(best_sentence(text, "the reader"), "Because of the reader.");
  EXPECT_EQ(best_sentence(text, "title"), "# Title");
  EXPECT_EQ(best_sentence(text, "nothing alike"), "It rains.");
  EXPECT_EQ(best_sentence("## Head\nFirst text. More.", "x"), "First text.");
  EXPECT_EQ(best_sentence("## Head\n", "x"), "## Head");
  EXPECT_EQ(best_sentence("| a | b |\n|---|---|\n| zstd | texts |\n| zlib | pages |\n", "pages"),
            "| zlib | pages |");
  EXPECT_EQ(best_sentence("Items:\n- one thing\n- another\n  thing\n* last", "another"), "- another thing");
  EXPECT_EQ(best_sentence("\n\n  second.", "x"), "second.");
  EXPECT_EQ(best_sentence("", "x"), "");
  EXPECT_EQ(best_sentence("version 1.5 is out", "1.5"), "version 1.5 is out");
}

TEST(BestSentence, ScriptsWithoutSpacesAndAccents) {
  EXPECT_EQ(best_sentence("市役所は九時に開きます。図書館は閉まっています。", "図書館はいつ"),
            "図書館は閉まっています。");
  EXPECT_EQ(best_sentence("Ein Haus. Das Rathaus öffnet um neun.", "öffnet?"), "Das Rathaus öffnet um neun.");
}

TEST(Flattened, TrimsAndJoins) {
  EXPECT_EQ(flattened("  a\n\n\tb\u00a0c\u3000 "), "a b c");
  EXPECT_EQ(flattened(" \n"), "");
  EXPECT_EQ(flattened("数 字"), "数 字");
}

TEST(PlaceInSource, LinesAndPages) {
  EXPECT_EQ(place_in_source("a.md", 12, 0), "a.md:12");
  EXPECT_EQ(place_in_source("a.pdf", 40, 3), "a.pdf:40 (page 3)");
}

}  // namespace
}  // namespace rhapsode::cli
