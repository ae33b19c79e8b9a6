// From what a user calls a model to its file.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace rhapsode::cli {

// A name with a slash or ending in .gguf is a path; another is a model in the home folder, as `rhapsode pull`
// puts it.
Result<std::filesystem::path> locate_model(const std::string& name);

}  // namespace rhapsode::cli
