// Ctrl-C (SIGINT) and SIGTERM as something to wait for.
//
// While an InterruptGuard lives, the first of these signals makes fd() readable and signal_number() non-zero;
// a second one ends the process as the system would. At most one guard at a time; it costs a pipe and two
// sigactions.
#pragma once

#include <signal.h>

#include "base/result.h"

namespace rhapsode::cli {

class InterruptGuard {
 public:
  static Result<InterruptGuard> install();
  InterruptGuard(InterruptGuard&& other) noexcept;
  InterruptGuard& operator=(InterruptGuard&&) = delete;
  ~InterruptGuard();

  int fd() const { return read_fd_; }  // for poll(); never read it
  int signal_number() const;           // 0: none has come

 private:
  InterruptGuard() = default;
  int read_fd_ = -1;
  int write_fd_ = -1;
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

}  // namespace rhapsode::cli
