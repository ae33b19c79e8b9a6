#include "cli/resolve.h"

#include <cstdlib>

#include "base/system.h"

namespace rhapsode::cli {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

const char* to_string(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFlag:
      return "flag";
  }
  return "default";
}

Result<Resolved> resolve(const OptionSources& sources, uint32_t command_id, std::string_view command) {
  Resolved resolved;
  for (const OptionSpec& spec : option_specs()) {
    if (!(spec.commands & command_id)) continue;
    ResolvedOption option{&spec, Origin::kDefault, ""};
    std::vector<std::string> values;
    std::string label;
    if (const auto flag = sources.flags.find(&spec); flag != sources.flags.end()) {
      option.origin = Origin::kFlag;
      values = flag->second;
      option.where = label = fmt::format("--{}", spec.name);
    } else if (const auto variable = sources.environment(spec.environment());
               variable && !variable->empty()) {
      option.origin = Origin::kEnvironment;
      values = spec.repeatable() ? lines_of(*variable) : std::vector<std::string>{*variable};
      option.where = label = spec.environment();
    } else if (const ConfigEntry* entry = sources.file ? sources.file->find(spec, command) : nullptr) {
      option.origin = Origin::kFile;
      values = entry->values;
      option.where = fmt::format("{}:{}", sources.file->path.string(), entry->line);
      label = fmt::format("{}: {}", option.where, spec.key());
    }
    if (option.origin != Origin::kDefault) {
      RH_TRY_STATUS(parse_option(spec, label, values, resolved.settings));
    }
    resolved.options.push_back(std::move(option));
  }
  return resolved;
}

Result<std::optional<ConfigFile>> find_config(const OptionSources& sources) {
  const OptionSpec* spec = find_option("config");
  std::filesystem::path path;
  if (const auto flag = sources.flags.find(spec); flag != sources.flags.end()) {
    path = flag->second.back();
  } else if (const auto variable = sources.environment(spec->environment())) {
    path = *variable;
  }
  if (path.empty()) {
    path = home_folder() / "rhapsode.toml";
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return std::optional<ConfigFile>();
  }
  RH_TRY(ConfigFile file, read_config(path));
  return std::optional<ConfigFile>(std::move(file));
}

}  // namespace rhapsode::cli
