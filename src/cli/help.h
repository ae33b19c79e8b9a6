// The help texts, made from the tables of commands and options.
#pragma once

#include <string>

#include "cli/command.h"

namespace rhapsode::cli {

std::string program_help(const Terminal& terminal);
std::string command_help(const Command& command, const Terminal& terminal);

}  // namespace rhapsode::cli
