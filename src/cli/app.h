// The program: reads the command line, runs a command, prints its failure, and gives the exit code.
#pragma once

namespace rhapsode::cli {

int run_program(int argc, const char* const* argv);

}  // namespace rhapsode::cli
