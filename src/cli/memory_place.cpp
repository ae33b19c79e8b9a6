#include "cli/memory_place.h"

#include <algorithm>
#include <optional>

#include "base/system.h"

namespace rhapsode::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = ".rhapsode";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

// The nearest folder, from `current` upwards, for which `holds` is true.
template <typename Predicate>
std::optional<fs::path> nearest_folder(const fs::path& current, const Predicate& holds) {
  for (fs::path folder = current;; folder = folder.parent_path()) {
    if (holds(folder)) return folder;
    if (folder == folder.parent_path()) return std::nullopt;
  }
}

bool lies_below(const std::string& path, const fs::path& current) {
  if (path == "-") return false;  // standard input lies nowhere
  const fs::path relative = (current / path).lexically_normal().lexically_relative(current);
  return !relative.empty() && *relative.begin() != "..";
}

std::optional<MemoryPlace> known_place(const fs::path& given, const PlaceSearch& search) {
  if (!given.empty()) return MemoryPlace{given, ""};
  // The home folder itself may be called .rhapsode; it holds models, and is no memory.
  const auto owner = nearest_folder(search.current, [&](const fs::path& folder) {
    std::error_code ignored;
    return fs::is_directory(folder / kName, ignored) && !same(folder / kName, search.home);
  });
  if (!owner) return std::nullopt;
  if (*owner == search.current) return MemoryPlace{kName, "in the current folder"};
  return MemoryPlace{*owner / kName, "in the nearest folder upwards that has one"};
}

MemoryPlace home_place(const PlaceSearch& search) {
  return {search.home / "memory", "in the home folder"};
}

}  // namespace

PlaceSearch process_places() {
  std::error_code ignored;
  return {fs::current_path(ignored), home_folder()};
}

MemoryPlace find_memory(const fs::path& given, const PlaceSearch& search) {
  return known_place(given, search).value_or(home_place(search));
}

MemoryPlace place_for_memory(const fs::path& given, std::span<const std::string> paths,
                             const PlaceSearch& search) {
  if (auto known = known_place(given, search)) return *known;
  const bool in_repository = nearest_folder(search.current, [](const fs::path& folder) {
                               return is_there(folder / ".git");
                             }).has_value();
  const bool all_below = !paths.empty() && std::all_of(paths.begin(), paths.end(), [&](const auto& path) {
    return lies_below(path, search.current);
  });
  if ((in_repository || all_below) && !same(search.current / kName, search.home)) {
    return {kName, "in the current folder"};
  }
  return home_place(search);
}

}  // namespace rhapsode::cli
