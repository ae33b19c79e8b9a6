#include "cli/home.h"

#include <cstdlib>

namespace rhapsode::cli {

std::filesystem::path home_folder() {
  const char* chosen = std::getenv("RHAPSODE_HOME");
  if (chosen && *chosen) return chosen;
  const char* user = std::getenv("HOME");
  return std::filesystem::path(user && *user ? user : ".") / ".cache" / "rhapsode";
}

}  // namespace rhapsode::cli
