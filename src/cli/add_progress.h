// Progress of encoding: a line that is redrawn on a terminal, now and then a line in a pipe.
//
// Both go to standard error. Cost: update() may be called as often as one likes; it draws ten times a second
// at most, and prints every ten seconds at most.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "rhapsode/memory_options.h"

namespace rhapsode::cli {

class AddProgressLine {
 public:
  explicit AddProgressLine(Terminal& terminal) : terminal_(terminal) {}

  // `seconds` is a steady clock's.
  void update(const AddProgress& progress, double seconds);

  // The redrawn line, for tests.
  std::string line(const AddProgress& progress) const;

 private:
  Terminal& terminal_;
  double shown_at_ = -1;
};

}  // namespace rhapsode::cli
