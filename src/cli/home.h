// The folder that holds models, weight copies and rhapsode.toml.
#pragma once

#include <filesystem>

namespace rhapsode::cli {

// $RHAPSODE_HOME, else ~/.cache/rhapsode. Need not exist.
std::filesystem::path home_folder();

}  // namespace rhapsode::cli
