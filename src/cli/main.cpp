#include "cli/app.h"
#include "cli/openmp_wait.h"

int main(int argc, char** argv) {
  rhapsode::cli::shorten_openmp_spin(argv);
  return rhapsode::cli::run_program(argc, argv);
}
