// What the process may use of the machine. Threads: any. Cost: a few system calls each.
#pragma once

#include <cstdint>
#include <filesystem>

namespace rhapsode {

// Cores of the process's affinity mask, at least 1.
int usable_cores();

// Physical memory, or the control group's limit where that is lower.
uint64_t memory_bytes();

// $RHAPSODE_HOME, else $XDG_CACHE_HOME/rhapsode, else ~/.cache/rhapsode: models, weight copies and
// configuration.
std::filesystem::path home_folder();

}  // namespace rhapsode
