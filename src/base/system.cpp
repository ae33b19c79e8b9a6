#include "base/system.h"

#include <pwd.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace rhapsode {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

uint64_t memory_bytes() {
  uint64_t bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  uint64_t limit = 0;
  if (limit_file >> limit && limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

std::filesystem::path home_folder() {
  if (const char* home = std::getenv("RHAPSODE_HOME"); home && *home) return home;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    return std::filesystem::path(cache) / "rhapsode";
  }
  const char* user_home = std::getenv("HOME");
  if (!user_home || !*user_home) {
    const passwd* entry = getpwuid(getuid());
    user_home = entry ? entry->pw_dir : "/";
  }
  return std::filesystem::path(user_home) / ".cache" / "rhapsode";
}

}  // namespace rhapsode
