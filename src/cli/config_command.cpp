// `rhapsode config`: every option's value and where it comes from.
#include <algorithm>

#include "base/system.h"
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/suggest.h"
#include "cli/table.h"

namespace rhapsode::cli {
namespace {

// One value of one option, for the commands that share it.
struct Row {
  ResolvedOption resolved;
  std::string value;
  std::vector<std::string> commands;
  bool everywhere = true;  // for all the commands shown that take the option
};

Result<std::vector<const Command*>> shown_commands(const Invocation& invocation) {
  std::vector<const Command*> shown;
  if (!invocation.arguments.empty()) {
    const std::string& name = invocation.arguments.front();
    shown.push_back(find_command(name));
    if (!shown.back()) {
      return make_error(ErrorKind::kInvalidArgument, "unknown command '{}'{}", name,
                        did_you_mean(name, command_names()));
    }
    return shown;
  }
  for (const Command& command : commands()) {
    if (command.id != kConfig) shown.push_back(&command);
  }
  return shown;
}

Result<std::vector<Row>> make_rows(const OptionSources& sources, std::span<const Command* const> shown) {
  std::vector<Row> rows;
  for (const Command* command : shown) {
    RH_TRY(const Resolved resolved, resolve(sources, command->id, command->name));
    for (const ResolvedOption& option : resolved.options) {
      const std::string value = show_option(*option.option, resolved.settings);
      const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return row.resolved.option == option.option && row.value == value &&
               row.resolved.where == option.where;
      });
      if (same != rows.end()) {
        same->commands.emplace_back(command->name);
      } else {
        rows.push_back({option, value, {command->name}});
      }
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.resolved.option < b.resolved.option; });
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].resolved.option == rows[i - 1].resolved.option)
      rows[i].everywhere = rows[i - 1].everywhere = false;
  }
  return rows;
}

Json row_json(const Row& row) {
  const OptionSpec& option = *row.resolved.option;
  return {{"name", option.name},        {"key", option.key()}, {"environment", option.environment()},
          {"commands", row.commands},   {"value", row.value},  {"origin", to_string(row.resolved.origin)},
          {"where", row.resolved.where}};
}

void print_table(const std::vector<Row>& rows, const std::string& file, Terminal& terminal) {
  Table table({{"option"}, {"value"}, {"from"}});
  for (const Row& row : rows) {
    std::string name = row.resolved.option->name;
    if (!row.everywhere) name += fmt::format(" ({})", fmt::join(row.commands, ", "));
    const bool chosen = row.resolved.origin != Origin::kDefault;
    table.add({name, row.value, chosen ? row.resolved.where : to_string(row.resolved.origin)});
  }
  terminal.print(table.render(terminal));
  terminal.print(fmt::format("\nhome folder: {}\noptions file: {}\n", home_folder().string(), file));
}

}  // namespace

Result<int> run_config(Invocation& invocation) {
  RH_TRY(const auto shown, shown_commands(invocation));
  RH_TRY(const auto rows, make_rows(invocation.sources, shown));
  const auto& file = invocation.sources.file;
  if (invocation.settings.json) {
    Json options = Json::array();
    for (const Row& row : rows) options.push_back(row_json(row));
    invocation.terminal.print(to_text({{"home", home_folder().string()},
                                       {"file", file ? Json(file->path.string()) : Json(nullptr)},
                                       {"options", std::move(options)}}));
  } else {
    const std::string absent =
        fmt::format("none ({} does not exist)", (home_folder() / "rhapsode.toml").string());
    print_table(rows, file ? file->path.string() : absent, invocation.terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
