#include "cli/openmp_wait.h"

#include <stdlib.h>
#include <unistd.h>

namespace rhapsode::cli {

void shorten_openmp_spin(char** argv) {
  if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
  if (setenv("GOMP_SPINCOUNT", "1000", 1) != 0) return;
  execv("/proc/self/exe",
        argv);  // comes back only when it failed: everything then works, only less well shared
}

}  // namespace rhapsode::cli
