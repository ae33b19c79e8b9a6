// From all places an option may stand in to one Settings: flag, else environment, else rhapsode.toml, else
// default.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/config_file.h"
#include "cli/option.h"
#include "cli/settings.h"

namespace rhapsode::cli {

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

enum class Origin : uint8_t { kDefault, kFile, kEnvironment, kFlag };
const char* to_string(Origin origin);  // "default", "file", "environment", "flag"

struct OptionSources {
  std::map<const OptionSpec*, std::vector<std::string>> flags;
  EnvironmentLookup environment = process_environment;
  std::optional<ConfigFile> file;
};

struct ResolvedOption {
  const OptionSpec* option = nullptr;
  Origin origin = Origin::kDefault;
  std::string where;  // "--top-p", "RHAPSODE_TOP_P", "rhapsode.toml:3"; empty for a default
};

struct Resolved {
  Settings settings;
  std::vector<ResolvedOption> options;  // those the command takes, in the registry's order
};

// An empty environment variable counts as absent; a repeatable option's variable holds a value a line.
Result<Resolved> resolve(const OptionSources& sources, uint32_t command_id, std::string_view command);

// The file that --config, RHAPSODE_CONFIG or the home folder names, read; nullopt when only the last is
// absent.
Result<std::optional<ConfigFile>> find_config(const OptionSources& sources);

}  // namespace rhapsode::cli
