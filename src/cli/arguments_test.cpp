// The command line: what is accepted, and the sentence for what is not.
#include "cli/arguments.h"

#include <gtest/gtest.h>

#include "cli/suggest.h"

namespace rhapsode::cli {
namespace {

Result<CommandLine> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "rhapsode");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

std::vector<std::string> values(const CommandLine& line, const char* option) {
  const auto found = line.flags.find(find_option(option));
  return found == line.flags.end() ? std::vector<std::string>() : found->second;
}

using Texts = std::vector<std::string>;

TEST(CommandLine, FlagsOfAllForms) {
  const auto line = parse({"generate", "-n", "5", "--top-p=0.5", "--stop", "a", "--stop", "[END]", "--raw",
                           "--no-prefix-cache", "--temperature", "-1", "[a, b]"});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_STREQ(line->command->name, "generate");
  EXPECT_EQ(line->arguments, Texts{"[a, b]"});
  EXPECT_EQ(values(*line, "max-tokens"), Texts{"5"});
  EXPECT_EQ(values(*line, "top-p"), Texts{"0.5"});
  EXPECT_EQ(values(*line, "stop"), (Texts{"a", "[END]"}));
  EXPECT_EQ(values(*line, "raw"), Texts{"true"});
  EXPECT_EQ(values(*line, "prefix-cache"), Texts{"false"});
  EXPECT_EQ(values(*line, "temperature"), Texts{"-1"});
}

TEST(CommandLine, ADoubleDashEndsTheFlags) {
  const auto line = parse({"generate", "--raw", "--", "-5 is"});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_EQ(line->arguments, Texts{"-5 is"});
}

TEST(CommandLine, AnyNumberOfArguments) {
  const auto line = parse({"add", "a b", "--tag", "x", "[c]", "list", "-", "-y", "--tag=y", "--", "-d"});
  ASSERT_TRUE(line.ok()) << line.error().message;
  EXPECT_EQ(line->arguments, (Texts{"a b", "[c]", "list", "-", "-d"}));
  EXPECT_EQ(values(*line, "tag"), (Texts{"x", "y"}));
  EXPECT_EQ(values(*line, "yes"), Texts{"true"});
  EXPECT_EQ(parse({"add"}).error().message, "add needs PATH...; run `rhapsode add --help`");
  EXPECT_EQ(parse({"generate", "a", "--", "-b"}).error().message,
            "generate takes one [PROMPT]; '-b' is one too many (put text with spaces in quotes)");
  EXPECT_TRUE(parse({"forget"}).ok());
  EXPECT_EQ(parse({"ask", "-"})->arguments, Texts{"-"});
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_TRUE(parse({"--help"})->help);
  EXPECT_TRUE(parse({"-h"})->help);
  EXPECT_TRUE(parse({"--version"})->version);
  EXPECT_STREQ(parse({"bench", "--help"})->command->name, "bench");
  EXPECT_STREQ(parse({"help", "bench"})->command->name, "bench");
  EXPECT_TRUE(parse({"help"})->help);
  EXPECT_EQ(parse({})->command, nullptr);
}

TEST(CommandLine, JsonMayStandBeforeTheCommand) {
  EXPECT_EQ(values(*parse({"--json", "inspect"}), "json"), Texts{"true"});
  EXPECT_EQ(values(*parse({"inspect", "--json"}), "json"), Texts{"true"});
}

struct Refusal {
  const char* name;
  std::vector<const char*> words;
  const char* message;
};

class RefusedLine : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedLine, SaysWhy) {
  const auto line = parse(GetParam().words);
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(line.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(line.error().message, GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    CommandLine, RefusedLine,
    testing::Values(
        Refusal{"misspelt_command", {"genrate"}, "unknown command 'genrate'; did you mean 'generate'?"},
        Refusal{"unknown_command",
                {"frobnicate"},
                "unknown command 'frobnicate'; there are add, ask, search, chat, list, show, forget, "
                "remember, facts, stats, "
                "verify, "
                "export, import, generate, pull, inspect, bench, eval, routing, calibrate, "
                "config"},
        Refusal{"misspelt_flag",
                {"generate", "--top_p", "1"},
                "generate has no option --top_p; did you mean '--top-p'?"},
        Refusal{"cut_flag",
                {"generate", "--tempp=1"},
                "generate has no option --tempp; did you mean '--temperature'?"},
        Refusal{"unknown_flag",
                {"generate", "--frobnicate"},
                "generate has no option --frobnicate; `rhapsode generate --help` lists its options"},
        Refusal{"flag_of_another_command",
                {"generate", "--tensors"},
                "generate has no option --tensors; it belongs to another command"},
        Refusal{
            "flag_before_command",
            {"--raw", "generate"},
            "unknown option --raw before a command; options of a command follow it, as in `rhapsode generate "
            "--help`"},
        Refusal{"missing_value", {"generate", "--top-p"}, "--top-p needs a value"},
        Refusal{"two_prompts",
                {"generate", "a", "b"},
                "generate takes one [PROMPT]; 'b' is one too many (put text with spaces in quotes)"},
        Refusal{"argument_of_bench", {"bench", "x"}, "bench takes no arguments; 'x' given"},
        Refusal{
            "help_for_nothing", {"help", "generte"}, "unknown command 'generte'; did you mean 'generate'?"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(Nearest, FindsSlipsAndShortForms) {
  const Texts names{"temperature", "top-p", "top-k", "threads", "max-tokens"};
  EXPECT_EQ(nearest("temprature", names), "temperature");
  EXPECT_EQ(nearest("temp", names), "temperature");
  EXPECT_EQ(nearest("top_p", names), "top-p");
  EXPECT_EQ(nearest("max-token", names), "max-tokens");
  EXPECT_EQ(nearest("grammar", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(1000, 'a'), names), "");
}

}  // namespace
}  // namespace rhapsode::cli
