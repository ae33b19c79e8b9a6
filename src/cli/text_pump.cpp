#include "cli/text_pump.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>

namespace rhapsode::cli {
namespace {

constexpr auto kGraceAfterSignal = std::chrono::milliseconds(500);
using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point when) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(when - Clock::now()).count();
  return left > 0 ? static_cast<int>(left) + 1 : 0;
}

}  // namespace

Result<std::unique_ptr<TextPump>> TextPump::make() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return make_system_error(errno, "cannot make an event for the output loop");
  return std::unique_ptr<TextPump>(new TextPump(fd));
}

TextPump::~TextPump() {
  close(wake_fd_);
}

void TextPump::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(wake_fd_, &one, sizeof one);  // fails only when awake already
}

void TextPump::push(std::string_view piece) {
  {
    const std::lock_guard lock(mutex_);
    pending_ += piece;
  }
  wake();
}

void TextPump::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  wake();
}

bool TextPump::take(std::string& text) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t read_bytes = ::read(wake_fd_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  text.clear();
  text.swap(pending_);
  return finished_;
}

bool TextPump::run(Terminal& terminal, const InterruptGuard& interrupts,
                   const std::function<std::string(const std::string&)>& format,
                   const std::function<void()>& cancel) {
  std::string text, unwritten;
  bool cancelled = false, interrupted = false;
  Clock::time_point deadline;
  while (true) {
    const bool finished = take(text);
    if (!text.empty()) unwritten += format(text);
    const bool late = interrupted && Clock::now() >= deadline;
    if (late && !unwritten.empty()) terminal.note_out_closed();
    const bool nobody_reads = terminal.out_closed() || !terminal.out_status().ok();
    if (nobody_reads) unwritten.clear();
    if ((finished || late) && unwritten.empty()) return finished;
    if ((nobody_reads || interrupted) && !cancelled) {
      cancelled = true;
      cancel();
    }

    pollfd fds[3] = {
        {wake_fd_, POLLIN, 0},
        {interrupted ? -1 : interrupts.fd(), POLLIN, 0},
        {nobody_reads ? -1 : terminal.out_fd(), static_cast<short>(unwritten.empty() ? 0 : POLLOUT), 0}};
    if (poll(fds, 3, interrupted ? milliseconds_until(deadline) : -1) < 0)
      continue;  // a signal: its pipe tells
    if (fds[1].revents != 0) {
      interrupted = true;
      deadline = Clock::now() + kGraceAfterSignal;
    }
    if (fds[2].revents & POLLOUT) {
      unwritten.erase(0, terminal.print_some(unwritten));
    } else if (fds[2].revents & (POLLERR | POLLNVAL)) {
      terminal.note_out_closed();
    }
  }
}

}  // namespace rhapsode::cli
