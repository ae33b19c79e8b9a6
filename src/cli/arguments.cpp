#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "cli/suggest.h"

namespace rhapsode::cli {
namespace {

// Every flag of the registry as a CLI11 option that only collects its texts.
class Parser {
 public:
  Parser() : app_("rhapsode") {
    app_.set_help_flag();
    app_.allow_extras();
    app_.require_subcommand(0, 1);
    app_.add_flag("-h,--help");
    app_.add_flag("-V,--version");
    app_.add_flag("--json");
    for (const Command& command : commands()) add_command(command);
  }

  Result<CommandLine> parse(int argc, const char* const* argv) {
    // What stands behind "--" is no flag, whatever it looks like. (CLI11 would hand it to the program itself
    // once a command has its least number of arguments.)
    const char* const* end = std::find(argv + std::min(argc, 1), argv + argc, std::string_view("--"));
    verbatim_.assign(std::min(end + 1, argv + argc), argv + argc);
    try {
      app_.parse(static_cast<int>(end - argv), argv);
    } catch (const CLI::ParseError& error) {
      return rephrase(error);
    }
    CommandLine line;
    line.version = app_.count("--version") > 0;
    line.help = app_.count("--help") > 0;
    if (app_.count("--json") > 0) line.flags[find_option("json")] = {"true"};
    for (const Command& command : commands()) {
      if (app_.got_subcommand(command.name)) RH_TRY_STATUS(collect(command, line));
    }
    RH_TRY_STATUS(explain_root_extras());
    return line;
  }

 private:
  void add_command(const Command& command) {
    CLI::App* sub = app_.add_subcommand(command.name);
    sub->set_help_flag();
    sub->allow_extras();
    sub->add_flag("-h,--help");
    for (const OptionSpec& spec : option_specs()) {
      if (!(spec.commands & command.id)) continue;
      const std::string letter = spec.letter ? fmt::format("-{},", spec.letter) : "";
      if (spec.is_switch()) {
        const std::string names = fmt::format("{0}--{1},--no-{1}{{false}}", letter, spec.name);
        sub->add_flag(names)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      } else {
        sub->add_option(fmt::format("{}--{}", letter, spec.name), CLI::callback_t())
            ->expected(1)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
      }
    }
    // Many arguments are taken from what is left over: CLI11 would strip the brackets of "[id]".
    if (command.most_arguments > 0 && command.most_arguments < kManyArguments) {
      sub->add_option("arguments", CLI::callback_t())
          ->expected(command.most_arguments)
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  Status collect(const Command& command, CommandLine& line) {
    const CLI::App* sub = app_.get_subcommand(command.name);
    line.command = &command;
    line.help = line.help || sub->count("--help") > 0;
    if (line.help) return {};
    for (const OptionSpec& spec : option_specs()) {
      if (!(spec.commands & command.id)) continue;
      const CLI::Option* option = sub->get_option(fmt::format("--{}", spec.name));
      if (option->count() > 0) line.flags[&spec] = option->results();
    }
    if (const CLI::Option* option = sub->get_option_no_throw("arguments")) line.arguments = option->results();
    for (const std::string& extra : sub->remaining()) {
      if (extra.size() > 1 && extra[0] == '-') return unknown_flag(command, extra);
      line.arguments.push_back(extra);
    }
    line.arguments.insert(line.arguments.end(), verbatim_.begin(), verbatim_.end());
    if (static_cast<int>(line.arguments.size()) > command.most_arguments) {
      return unexpected_argument(command, line.arguments[static_cast<size_t>(command.most_arguments)]);
    }
    if (static_cast<int>(line.arguments.size()) < command.least_arguments) {
      return usage(fmt::format("{} needs {}; run `rhapsode {} --help`", command.name, command.arguments,
                               command.name));
    }
    return {};
  }

  Status explain_root_extras() const {
    const std::vector<std::string> extras = app_.remaining();
    if (extras.empty()) return {};
    if (extras[0].starts_with('-')) {
      return usage(
          fmt::format("unknown option {} before a command; options of a command follow it, as in "
                      "`rhapsode generate --help`",
                      extras[0]));
    }
    const std::vector<std::string> names = command_names();
    const std::string hint = did_you_mean(extras[0], names);
    return usage(fmt::format("unknown command '{}'{}", extras[0],
                             hint.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : hint));
  }

  static Error unknown_flag(const Command& command, const std::string& given) {
    const std::string name = given.substr(0, given.find('='));
    std::vector<std::string> known;
    for (const OptionSpec& spec : option_specs()) {
      if (spec.commands & command.id) known.push_back(spec.flag());
    }
    std::string hint = did_you_mean(name, known);
    if (hint.empty() && find_option(name.substr(std::min<size_t>(2, name.size())))) {
      hint = "; it belongs to another command";
    }
    if (hint.empty()) hint = fmt::format("; `rhapsode {} --help` lists its options", command.name);
    return usage(fmt::format("{} has no option {}{}", command.name, name, hint));
  }

  static Error unexpected_argument(const Command& command, const std::string& given) {
    if (command.most_arguments == 0)
      return usage(fmt::format("{} takes no arguments; '{}' given", command.name, given));
    return usage(fmt::format("{} takes one {}; '{}' is one too many (put text with spaces in quotes)",
                             command.name, command.arguments, given));
  }

  // CLI11 reports a missing value as "--top-p: 1 required missing".
  static Error rephrase(const CLI::ParseError& error) {
    const std::string text = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
      return usage(fmt::format("{} needs a value", text.substr(0, text.find(':'))));
    }
    return usage(text);
  }

  static Error usage(std::string message) { return Error{ErrorKind::kInvalidArgument, std::move(message)}; }

  CLI::App app_;
  std::vector<std::string> verbatim_;  // behind "--"
};

}  // namespace

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  // `rhapsode help generate` reads as `rhapsode generate --help`.
  if (argc >= 2 && std::string_view(argv[1]) == "help") {
    CommandLine line;
    line.help = true;
    if (argc > 2) {
      line.command = find_command(argv[2]);
      if (!line.command) {
        return make_error(ErrorKind::kInvalidArgument, "unknown command '{}'{}", argv[2],
                          did_you_mean(argv[2], command_names()));
      }
    }
    return line;
  }
  return Parser().parse(argc, argv);
}

}  // namespace rhapsode::cli
