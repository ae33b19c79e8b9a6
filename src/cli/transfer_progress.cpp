#include "cli/transfer_progress.h"

#include <algorithm>
#include <cmath>

#include "cli/quantity.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr double kDrawEvery = 0.1;     // seconds
constexpr double kSampleLength = 0.5;  // seconds
constexpr double kSmoothing = 0.3;     // weight of the newest rate sample
constexpr uint64_t kUnknownStep = 100'000'000;
constexpr int kMostBarColumns = 24;
constexpr int kLeastBarColumns = 6;

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

}  // namespace

void TransferProgress::restart(const TransferStep& step, double seconds) {
  bytes_per_s_ = 0;
  printed_tenths_ = 0;
  drawn_at_ = -1;
  sample_bytes_ = step.done_bytes;
  sample_at_ = seconds;
}

void TransferProgress::measure_rate(double seconds) {
  const double elapsed = seconds - sample_at_;
  if (elapsed < kSampleLength) return;
  const double rate = static_cast<double>(step_.done_bytes - sample_bytes_) / elapsed;
  bytes_per_s_ = bytes_per_s_ == 0 ? rate : kSmoothing * rate + (1 - kSmoothing) * bytes_per_s_;
  sample_bytes_ = step_.done_bytes;
  sample_at_ = seconds;
}

void TransferProgress::update(const TransferStep& step, double seconds) {
  if (step.what != step_.what || step.done_bytes < step_.done_bytes) restart(step, seconds);
  step_ = step;
  measure_rate(seconds);
  if (terminal_.shows_status()) {
    draw(seconds);
  } else if (step.in_tenths) {
    print_line();
  } else if (step.what != announced_) {
    announced_ = step.what;
    terminal_.print_err(fmt::format("{}: {}\n", name_, step.what));
  }
}

void TransferProgress::draw(double seconds) {
  const bool complete = step_.total_bytes > 0 && step_.done_bytes >= step_.total_bytes;
  if (drawn_at_ >= 0 && seconds - drawn_at_ < kDrawEvery && !complete) return;
  drawn_at_ = seconds;
  terminal_.show_status(bar_line());
}

std::string TransferProgress::bar_line() const {
  const std::string rate =
      bytes_per_s_ > 0 ? fmt::format("  {}/s", show_bytes(static_cast<uint64_t>(bytes_per_s_))) : "";
  const std::string left = fmt::format("{}: {}", name_, step_.what);
  if (step_.total_bytes == 0) return fmt::format("{}  {}{}", left, show_bytes(step_.done_bytes), rate);

  const double share =
      std::min(1.0, static_cast<double>(step_.done_bytes) / static_cast<double>(step_.total_bytes));
  std::string right = fmt::format("{:3.0f} %  {} of {}{}", std::floor(share * 100),
                                  show_bytes(step_.done_bytes), show_bytes(step_.total_bytes), rate);
  if (bytes_per_s_ > 0) {
    const double missing =
        static_cast<double>(step_.total_bytes - std::min(step_.done_bytes, step_.total_bytes));
    right += fmt::format("  {} left", show_duration(missing / bytes_per_s_));
  }
  // The bar takes what the words leave.
  const int room = terminal_.traits().columns - 1 - display_width(left) - display_width(right) - 2;
  if (room < kLeastBarColumns) return fmt::format("{} {}", left, right);
  const int columns = std::min(room, kMostBarColumns);
  const int filled = static_cast<int>(share * columns);
  return fmt::format("{} {}{} {}", left, repeated("█", filled), repeated("░", columns - filled), right);
}

void TransferProgress::print_line() {
  const bool known = step_.total_bytes > 0;
  const uint64_t tenths = known ? static_cast<uint64_t>(10.0 * static_cast<double>(step_.done_bytes) /
                                                        static_cast<double>(step_.total_bytes))
                                : step_.done_bytes / kUnknownStep;
  if (tenths <= printed_tenths_) return;
  printed_tenths_ = tenths;
  const std::string rate =
      bytes_per_s_ > 0 ? fmt::format(", {}/s", show_bytes(static_cast<uint64_t>(bytes_per_s_))) : "";
  const std::string amount = known ? fmt::format("{} % of {}", tenths * 10, show_bytes(step_.total_bytes))
                                   : show_bytes(step_.done_bytes);
  terminal_.print_err(fmt::format("{}: {} {}{}\n", name_, step_.what, amount, rate));
}

}  // namespace rhapsode::cli
