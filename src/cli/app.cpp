#include "cli/app.h"

#include <signal.h>

#include <algorithm>
#include <exception>

#include "cli/arguments.h"
#include "cli/help.h"
#include "cli/json_output.h"
#include "cli/text_width.h"
#include "rhapsode/version.h"

namespace rhapsode::cli {
namespace {

// Errors of the command line are told in JSON too when the line asks for it, well-formed or not.
bool asks_for_json(int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + std::max(argc, 1),
                     [](const char* word) { return std::string_view(word) == "--json"; });
}

void print_error(const Error& error, bool json, Terminal& terminal) {
  const std::string message = terminal.traits().err_is_terminal ? printable(error.message) : error.message;
  terminal.print_err(fmt::format("{} {}\n", terminal.paint_err(Style::kRed, "rhapsode:"), message));
  if (json) terminal.print(to_line(error_json(error)));
}

int fail(const Error& error, bool json, Terminal& terminal) {
  print_error(error, json, terminal);
  return error.kind == ErrorKind::kInvalidArgument ? kExitUsage : kExitFailed;
}

int print_version(bool json, Terminal& terminal) {
  terminal.print(json ? to_line({{"version", kVersion}}) : fmt::format("rhapsode {}\n", kVersion));
  return kExitOk;
}

int run_command(const CommandLine& line, bool json, Terminal& terminal) {
  OptionSources sources;
  sources.flags = line.flags;
  auto file = find_config(sources);
  if (!file.ok()) return fail(file.error(), json, terminal);
  sources.file = std::move(file).value();
  auto resolved = resolve(sources, line.command->id, line.command->name);
  if (!resolved.ok()) return fail(resolved.error(), json, terminal);

  Invocation invocation{*line.command, line.arguments, sources, std::move(resolved->settings), terminal};
  const bool wants_json = invocation.settings.json;
  const Result<int> code = line.command->run(invocation);
  return code.ok() ? *code : fail(code.error(), wants_json, terminal);
}

int run_line(int argc, const char* const* argv, Terminal& terminal) {
  const bool json = asks_for_json(argc, argv);
  const auto line = parse_command_line(argc, argv);
  if (!line.ok()) return fail(line.error(), json, terminal);
  if (line->version) return print_version(json, terminal);
  if (line->help) {
    terminal.print(line->command ? command_help(*line->command, terminal) : program_help(terminal));
    return kExitOk;
  }
  if (!line->command) {
    return fail({ErrorKind::kInvalidArgument, "a command is missing; `rhapsode --help` lists them"}, json,
                terminal);
  }
  return run_command(*line, json, terminal);
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(), which ends the output quietly
  Terminal terminal(detect_traits());
  int code = kExitFailed;
  // The library returns its errors; what still arrives here is memory that ran out or a third party's
  // exception.
  try {
    code = run_line(argc, argv, terminal);
  } catch (const std::exception& error) {
    print_error({ErrorKind::kInternal, fmt::format("stopped by an unexpected error: {}", error.what())},
                false, terminal);
  }
  if (!terminal.out_status().ok()) {
    print_error(terminal.out_status().error(), false, terminal);
    return code == kExitOk ? kExitFailed : code;
  }
  return code;
}

}  // namespace rhapsode::cli
