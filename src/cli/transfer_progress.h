// Progress of something measured in bytes: a bar with rate and time left on a terminal, a line for every 10 %
// in a pipe.
//
// Both go to standard error. Cost: update() may be called as often as one likes; it draws ten times a second
// at most.
#pragma once

#include <cstdint>
#include <string>

#include "cli/terminal.h"

namespace rhapsode::cli {

struct TransferStep {
  std::string what;  // "downloading"
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;  // 0: unknown
  bool in_tenths = true;     // in a pipe; false: one line when it begins
};

class TransferProgress {
 public:
  TransferProgress(Terminal& terminal, std::string name) : terminal_(terminal), name_(std::move(name)) {}

  // `seconds` is a steady clock's. Fewer bytes than before, or another `what`, start anew.
  void update(const TransferStep& step, double seconds);

  // The bar's line, for tests.
  std::string bar_line() const;

 private:
  void restart(const TransferStep& step, double seconds);
  void measure_rate(double seconds);
  void draw(double seconds);
  void print_line();

  Terminal& terminal_;
  std::string name_;
  TransferStep step_;
  double drawn_at_ = -1;
  uint64_t printed_tenths_ = 0;  // of the whole, or pieces of 100 MB where that is unknown
  std::string announced_;        // the last step that is not told in tenths
  uint64_t sample_bytes_ = 0;    // where the running rate sample began
  double sample_at_ = 0;
  double bytes_per_s_ = 0;  // smoothed; 0: not known yet
};

}  // namespace rhapsode::cli
