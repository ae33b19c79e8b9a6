#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kLeftColumn = 30;

std::string row(const std::string& left, const std::string& right, const Terminal& terminal) {
  const int width = std::min(terminal.traits().columns, 100) - kLeftColumn - 2;
  std::string line = "  " + terminal.paint(Style::kCyan, left);
  const int padding = kLeftColumn - display_width(left);
  if (padding <= 0) line += '\n';
  line.append(static_cast<size_t>(padding > 0 ? padding : kLeftColumn + 2), ' ');
  return line + wrap_text(right, width, kLeftColumn + 2) + "\n";
}

std::string heading(std::string_view title, const Terminal& terminal) {
  return fmt::format("\n{}\n", terminal.paint(Style::kBold, title));
}

std::string explanation(const OptionSpec& spec) {
  std::string text = spec.help;
  const std::string value = show_option(spec, Settings());
  if (spec.repeatable()) text += "; may be repeated";
  if (!spec.is_switch() && !value.empty()) text += fmt::format(" [{}]", value);
  return text;
}

std::string left_side(const OptionSpec& spec) {
  return fmt::format("{}{}{}{}", spec.letter ? fmt::format("-{}, ", spec.letter) : "    ", spec.flag(),
                     spec.is_switch() ? "" : " ", spec.value_name);
}

constexpr OptionGroup kOrder[] = {
    OptionGroup::kPrompt,       OptionGroup::kAdding, OptionGroup::kSelection,  OptionGroup::kReading,
    OptionGroup::kConversation, OptionGroup::kBench,  OptionGroup::kEvaluation, OptionGroup::kLength,
    OptionGroup::kSampling,     OptionGroup::kMemory, OptionGroup::kModel,      OptionGroup::kEngine,
    OptionGroup::kOutput,       OptionGroup::kGeneral};

}  // namespace

std::string program_help(const Terminal& terminal) {
  std::string text = "Rhapsode runs open-weight language models and gives them a memory.\n\n";
  text += terminal.paint(Style::kBold, "Usage: ") + "rhapsode COMMAND [OPTIONS]\n\n";
  text += terminal.paint(Style::kBold, "Commands") + "\n";
  for (const Command& command : commands()) {
    text += row(fmt::format("{} {}", command.name, command.arguments), command.summary, terminal);
  }
  text += heading("Options", terminal);
  text += row("-h, --help", "show this help, or that of a command", terminal);
  text += row("-V, --version", "show the version", terminal);
  text += heading("First steps", terminal);
  text += "  rhapsode pull\n  rhapsode add docs/ README.md\n  rhapsode ask \"What does this project do?\"\n";
  return text;
}

std::string command_help(const Command& command, const Terminal& terminal) {
  std::string text = fmt::format("rhapsode {}: {}.\n\n", command.name, command.summary);
  text += terminal.paint(Style::kBold, "Usage: ") + fmt::format("rhapsode {}{}{} [OPTIONS]\n", command.name,
                                                                command.arguments[0] ? " " : "",
                                                                command.arguments);
  // `config` takes every option, only to show what it comes to.
  for (const OptionGroup group : kOrder) {
    if (command.id == kConfig && group != OptionGroup::kGeneral) continue;
    std::string rows;
    for (const OptionSpec& spec : option_specs()) {
      if (spec.group == group && (spec.commands & command.id)) {
        rows += row(left_side(spec), explanation(spec), terminal);
      }
    }
    if (group == OptionGroup::kGeneral) rows += row("-h, --help", "show this help", terminal);
    if (!rows.empty()) text += heading(title(group), terminal) + rows;
  }
  if (command.examples[0]) {
    text += heading("Examples", terminal) + "  ";
    for (const char c : std::string_view(command.examples)) {
      text += c;
      if (c == '\n') text += "  ";
    }
    text += "\n";
  }
  text += wrap_text(
      fmt::format("\n{}An option --some-name may also stand in rhapsode.toml (some_name = ..., before the "
                  "first section or under [{}]) or in the variable RHAPSODE_SOME_NAME; a flag wins over "
                  "the variable, which wins over the file.",
                  command.id == kConfig ? "Takes every option of the other commands. " : "", command.name),
      std::min(terminal.traits().columns, 100), 0);
  return text + "\n";
}

}  // namespace rhapsode::cli
