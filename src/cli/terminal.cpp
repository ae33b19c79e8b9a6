#include "cli/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kNarrowest = 40;
constexpr int kWidestText = 200;

int columns_of(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

const char* code(Style style) {
  switch (style) {
    case Style::kBold:
      return "1";
    case Style::kDim:
      return "2";
    case Style::kRed:
      return "31";
    case Style::kGreen:
      return "32";
    case Style::kYellow:
      return "33";
    case Style::kCyan:
      return "36";
  }
  return "0";
}

// The first of the three that is set decides, as for every program.
bool is_utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (!value || !*value) continue;
    std::string locale(value);
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

std::string painted(Style style, std::string_view text) {
  return fmt::format("\x1b[{}m{}\x1b[0m", code(style), text);
}

// 0, or the errno that stopped the writing.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready{fd, POLLOUT, 0};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR) return errno;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

TerminalTraits detect_traits() {
  TerminalTraits traits;
  traits.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  traits.err_is_terminal = isatty(STDERR_FILENO) == 1;
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  traits.can_erase = term && *term && std::string_view(term) != "dumb";
  traits.colours = traits.can_erase && !(no_color && *no_color);
  const int columns = columns_of(traits.out_is_terminal ? STDOUT_FILENO : STDERR_FILENO);
  traits.columns = std::clamp(columns, kNarrowest, kWidestText);
  traits.utf8 = is_utf8_locale();
  return traits;
}

std::string Terminal::paint(Style style, std::string_view text) const {
  return traits_.colours && traits_.out_is_terminal ? painted(style, text) : std::string(text);
}

std::string Terminal::paint_err(Style style, std::string_view text) const {
  return traits_.colours && traits_.err_is_terminal ? painted(style, text) : std::string(text);
}

std::string Terminal::shown(std::string_view text) const {
  return traits_.out_is_terminal ? printable(text) : std::string(text);
}

void Terminal::print(std::string_view text) {
  if (out_closed_ || !out_status_.ok()) return;
  if (traits_.out_is_terminal) clear_status();
  note_out_failure(write_all(out_fd_, text));
}

size_t Terminal::print_some(std::string_view text) {
  if (out_closed_ || !out_status_.ok()) return 0;
  if (traits_.out_is_terminal) clear_status();
  const ssize_t written = ::write(out_fd_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
  if (written >= 0) return static_cast<size_t>(written);
  if (errno != EINTR && errno != EAGAIN) note_out_failure(errno);
  return 0;
}

void Terminal::note_out_failure(int error_number) {
  if (error_number == EPIPE) {
    out_closed_ = true;
  } else if (error_number != 0) {
    out_status_ = make_system_error(error_number, "cannot write standard output");
  }
}

void Terminal::print_err(std::string_view text) {
  clear_status();
  write_all(err_fd_, text);  // there is nobody left to tell when this fails
}

void Terminal::show_status(std::string_view line) {
  if (!shows_status()) return;
  write_all(err_fd_, fmt::format("\r\x1b[K{}", clip_text(line, traits_.columns - 1)));
  status_shown_ = true;
}

void Terminal::clear_status() {
  if (!status_shown_) return;
  write_all(err_fd_, "\r\x1b[K");
  status_shown_ = false;
}

}  // namespace rhapsode::cli
