// rhapsode.toml: options in a file.
//
// Keys before the first section count for every command that takes them; a section named after a command
// ([generate]) holds for that command alone and wins over them. Keys are the options' names with underscores.
// Unknown keys, unknown sections and values of the wrong kind are errors that name file and line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/option.h"

namespace rhapsode::cli {

struct ConfigEntry {
  const OptionSpec* option = nullptr;
  std::string section;  // empty: every command
  std::vector<std::string> values;
  int line = 0;
};

struct ConfigFile {
  std::filesystem::path path;
  std::vector<ConfigEntry> entries;  // in the file's order

  // The entry that holds for a command, null when there is none.
  const ConfigEntry* find(const OptionSpec& option, std::string_view command) const;
};

Result<ConfigFile> read_config(const std::filesystem::path& path);

}  // namespace rhapsode::cli
