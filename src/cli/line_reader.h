// Lines of standard input, as a person types them or a pipe brings them; a signal ends the waiting.
//
// Bytes after a line are kept for the next one, so a process has one reader. Threads: one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "cli/interrupt.h"

namespace rhapsode::cli {

class LineReader {
 public:
  enum class Outcome : uint8_t { kLine, kEndOfInput, kInterrupted };

  explicit LineReader(int fd = 0) : fd_(fd) {}
  // Sets `line` without its line feed. A last line without one counts. kTooLarge above 1 MiB.
  Result<Outcome> next(std::string& line, const InterruptGuard& interrupts);

 private:
  bool take_line(std::string& line);

  int fd_;
  bool ended_ = false;
  std::string pending_;
};

}  // namespace rhapsode::cli
