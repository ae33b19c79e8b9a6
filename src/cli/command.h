// Commands of the program: one row each in command_table.cpp, one file each for what they do
// (generate_command.cpp, ...).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/option.h"
#include "cli/resolve.h"
#include "cli/terminal.h"

namespace rhapsode::cli {

// Exit codes of the program.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;  // ended by Ctrl-C, as shells report it

struct Command;

// Everything one run of a command works with.
struct Invocation {
  const Command& command;
  std::vector<std::string> arguments;  // between the command's least and most
  const OptionSources& sources;
  Settings settings;  // sources resolved for this command
  Terminal& terminal;
};

struct Command {
  CommandSet id;
  const char* name;
  const char* arguments;  // as in the usage line: "[PROMPT]"
  int least_arguments;
  int most_arguments;
  const char* summary;   // one line, for the list of commands
  const char* examples;  // lines of the help's last section; empty: none
  // The exit code; a failure is printed by the caller.
  Result<int> (*run)(Invocation& invocation);
};

std::span<const Command> commands();
const Command* find_command(std::string_view name);
std::vector<std::string> command_names();

inline constexpr int kManyArguments = 1 << 20;  // no limit but the system's

Result<int> run_add(Invocation& invocation);
Result<int> run_ask(Invocation& invocation);
Result<int> run_search(Invocation& invocation);
Result<int> run_chat(Invocation& invocation);
Result<int> run_list_sources(Invocation& invocation);
Result<int> run_show(Invocation& invocation);
Result<int> run_forget(Invocation& invocation);
Result<int> run_remember(Invocation& invocation);
Result<int> run_facts(Invocation& invocation);
Result<int> run_stats(Invocation& invocation);
Result<int> run_verify(Invocation& invocation);
Result<int> run_export(Invocation& invocation);
Result<int> run_import(Invocation& invocation);
Result<int> run_generate(Invocation& invocation);
Result<int> run_pull(Invocation& invocation);
Result<int> run_inspect(Invocation& invocation);
Result<int> run_bench(Invocation& invocation);
Result<int> run_eval(Invocation& invocation);
Result<int> run_routing(Invocation& invocation);
Result<int> run_calibrate(Invocation& invocation);
Result<int> run_config(Invocation& invocation);

}  // namespace rhapsode::cli
