// Standard output and error: colours, width and transient status lines on a terminal, plain text elsewhere.
//
// Colours need a terminal, no NO_COLOR and a TERM other than "dumb". Status lines go to standard error, and
// only when that is a terminal that can erase a line. A reader that has gone away (EPIPE) is no error: output
// stops quietly and out_closed() says so. Threads: one at a time.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::cli {

enum class Style { kBold, kDim, kRed, kGreen, kYellow, kCyan };

struct TerminalTraits {
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool colours = false;    // allowed at all; each stream must be a terminal besides
  bool can_erase = false;  // knows the sequences that a status line needs
  int columns = 80;
  bool utf8 = false;  // by the locale's name
};
// Of the process's standard streams and environment.
TerminalTraits detect_traits();

class Terminal {
 public:
  explicit Terminal(const TerminalTraits& traits, int out_fd = 1, int err_fd = 2)
      : traits_(traits), out_fd_(out_fd), err_fd_(err_fd) {}
  ~Terminal() { clear_status(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  const TerminalTraits& traits() const { return traits_; }
  bool shows_status() const { return traits_.err_is_terminal && traits_.can_erase; }
  int out_fd() const { return out_fd_; }

  // Text for standard output (or error), coloured where that stream shows colours.
  std::string paint(Style style, std::string_view text) const;
  std::string paint_err(Style style, std::string_view text) const;

  // Foreign text for standard output: as it is, but printable() on a terminal.
  std::string shown(std::string_view text) const;

  // Writes all of it. After a failure, print() does nothing more.
  void print(std::string_view text);
  void print_err(std::string_view text);
  // One write() of at most 4 KiB, which does not block after poll() has said that there is room; bytes
  // written.
  size_t print_some(std::string_view text);
  // Says that nobody reads any more, as poll() may tell before a write does.
  void note_out_closed() { out_closed_ = true; }
  bool out_closed() const { return out_closed_; }
  // How writing standard output went, a reader that has gone away aside.
  const Status& out_status() const { return out_status_; }

  // Replaces the status line; clipped to the width.
  void show_status(std::string_view line);
  void clear_status();

 private:
  void note_out_failure(int error_number);

  TerminalTraits traits_;
  int out_fd_;
  int err_fd_;
  bool out_closed_ = false;
  Status out_status_;
  bool status_shown_ = false;
};

}  // namespace rhapsode::cli
