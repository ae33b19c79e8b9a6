#include "cli/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace rhapsode::cli {
namespace {

std::atomic<int> g_signal{0};
std::atomic<int> g_write_fd{-1};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

extern "C" void on_signal(int number) {
  const int saved_errno = errno;
  g_signal.store(number);
  const char byte = 0;
  // A full pipe is readable all the same.
  [[maybe_unused]] const ssize_t written = ::write(g_write_fd.load(), &byte, 1);
  errno = saved_errno;
}

}  // namespace

Result<InterruptGuard> InterruptGuard::install() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return make_system_error(errno, "cannot make a pipe for signals");
  InterruptGuard guard;
  guard.read_fd_ = fds[0];
  guard.write_fd_ = fds[1];
  g_signal.store(0);
  g_write_fd.store(fds[1]);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // the second signal meets the system's own action
  sigemptyset(&action.sa_mask);
  for (auto [number, old] : {std::pair{SIGINT, &guard.old_int_}, std::pair{SIGTERM, &guard.old_term_}}) {
    sigaction(number, nullptr, old);
    if (old->sa_handler != SIG_IGN)
      sigaction(number, &action, nullptr);  // whoever started us wants it ignored
  }
  return guard;
}

InterruptGuard::InterruptGuard(InterruptGuard&& other) noexcept
    : read_fd_(std::exchange(other.read_fd_, -1)),
      write_fd_(std::exchange(other.write_fd_, -1)),
      old_int_(other.old_int_),
      old_term_(other.old_term_) {}

InterruptGuard::~InterruptGuard() {
  if (read_fd_ < 0) return;
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  g_write_fd.store(-1);
  close(read_fd_);
  close(write_fd_);
}

int InterruptGuard::signal_number() const {
  return g_signal.load();
}

}  // namespace rhapsode::cli
