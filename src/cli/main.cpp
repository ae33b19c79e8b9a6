#include "cli/app.h"

int main(int argc, char** argv) {
  return rhapsode::cli::run_program(argc, argv);
}
