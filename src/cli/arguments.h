// The command line, split into a command, its flags and its arguments. Values are read later, by resolve().
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"

namespace rhapsode::cli {

struct CommandLine {
  const Command* command = nullptr;  // null: none was named
  bool help = false;
  bool version = false;
  std::map<const OptionSpec*, std::vector<std::string>> flags;
  std::vector<std::string> arguments;
};

// Errors: kInvalidArgument, with the nearest flag or command where one was misspelt.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

}  // namespace rhapsode::cli
