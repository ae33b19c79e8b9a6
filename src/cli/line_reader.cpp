#include "cli/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace rhapsode::cli {
namespace {

constexpr size_t kLongestLine = 1 << 20;

}  // namespace

bool LineReader::take_line(std::string& line) {
  const size_t end = pending_.find('\n');
  if (end == std::string::npos && !(ended_ && !pending_.empty())) return false;
  line = pending_.substr(0, end);
  pending_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

Result<LineReader::Outcome> LineReader::next(std::string& line, const InterruptGuard& interrupts) {
  while (!take_line(line)) {
    if (ended_) return Outcome::kEndOfInput;
    if (pending_.size() > kLongestLine) {
      return make_error(ErrorKind::kTooLarge, "a line of standard input holds more than {} bytes",
                        kLongestLine);
    }
    pollfd fds[2] = {{fd_, POLLIN, 0}, {interrupts.fd(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR)
      return make_system_error(errno, "cannot wait for standard input");
    if (interrupts.signal_number() != 0) return Outcome::kInterrupted;
    if (fds[0].revents == 0) continue;
    char buffer[1 << 14];
    const ssize_t bytes = ::read(fd_, buffer, sizeof buffer);
    if (bytes < 0 && errno != EINTR && errno != EAGAIN)
      return make_system_error(errno, "cannot read standard input");
    if (bytes == 0) ended_ = true;
    if (bytes > 0) pending_.append(buffer, static_cast<size_t>(bytes));
  }
  return Outcome::kLine;
}

}  // namespace rhapsode::cli
