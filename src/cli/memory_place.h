// Which folder a command's memory lies in when --memory does not say it.
//
// Cost: a look into each folder upwards. Symbolic links are followed, as the shell does. Threads: any.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace rhapsode::cli {

struct MemoryPlace {
  std::filesystem::path folder;
  std::string why;  // "in the current folder"; empty when --memory named it
};

// Where the search begins and ends: the process's own, or a test's.
struct PlaceSearch {
  std::filesystem::path current;  // absolute
  std::filesystem::path home;     // home_folder()
};
PlaceSearch process_places();

// --memory, else `.rhapsode` of the nearest folder upwards that has one, else the one in the home folder.
MemoryPlace find_memory(const std::filesystem::path& given, const PlaceSearch& search);

// Where `add` and `import` make one: as above, but before the home folder's comes `.rhapsode` in the current
// folder when that is part of a git repository or all of `paths` (at least one) lie below it.
MemoryPlace place_for_memory(const std::filesystem::path& given, std::span<const std::string> paths,
                             const PlaceSearch& search);

}  // namespace rhapsode::cli
