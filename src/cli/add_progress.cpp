#include "cli/add_progress.h"

#include <algorithm>
#include <vector>

#include "cli/quantity.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr double kDrawEvery = 0.1;   // seconds
constexpr double kPrintEvery = 10;   // seconds
constexpr int kNarrowestSource = 8;  // columns
constexpr int kMostBarColumns = 16;
constexpr int kLeastBarColumns = 6;

double share_of(const AddProgress& progress) {
  if (progress.tokens_total == 0) return 0;
  return std::min(1.0,
                  static_cast<double>(progress.tokens_done) / static_cast<double>(progress.tokens_total));
}

std::string bar(double share, int columns) {
  std::string text;
  for (int i = 0; i < columns; ++i) text += i < static_cast<int>(share * columns) ? "█" : "░";
  return text;
}

// What is told, the most important first.
std::vector<std::string> facts(const AddProgress& progress) {
  std::vector<std::string> facts;
  if (progress.tokens_total > 0)
    facts.push_back(fmt::format("{} %", static_cast<int>(share_of(progress) * 100)));
  if (progress.seconds_left > 0)
    facts.push_back(fmt::format("{} left", show_duration(progress.seconds_left)));
  if (progress.tokens_per_s > 0)
    facts.push_back(fmt::format("{} tokens/s", show_rate(progress.tokens_per_s)));
  if (progress.sources_total > 0) {
    facts.push_back(fmt::format("{} of {} sources", progress.sources_done, progress.sources_total));
  }
  return facts;
}

}  // namespace

std::string AddProgressLine::line(const AddProgress& progress) const {
  const int room = terminal_.traits().columns - 1;
  std::string right;
  for (const std::string& fact : facts(progress)) {
    const std::string longer = right.empty() ? fact : fmt::format("{}  {}", right, fact);
    if (!right.empty() && display_width(longer) + 2 + kNarrowestSource > room) break;
    right = longer;
  }
  const int left = std::max(0, room - display_width(right) - 2);
  std::string source = printable(progress.source);
  std::replace(source.begin(), source.end(), '\n', ' ');
  std::replace(source.begin(), source.end(), '\t', ' ');
  source = clip_front(source, left);
  const int bar_columns = std::min(kMostBarColumns, left - display_width(source) - 2);
  if (bar_columns >= kLeastBarColumns && progress.tokens_total > 0) {
    right = fmt::format("{} {}", bar(share_of(progress), bar_columns), right);
  }
  return source.empty() ? right : fmt::format("{}  {}", source, right);
}

void AddProgressLine::update(const AddProgress& progress, double seconds) {
  const double every = terminal_.shows_status() ? kDrawEvery : kPrintEvery;
  if (shown_at_ < 0 && !terminal_.shows_status()) shown_at_ = seconds;  // short work prints nothing
  if (shown_at_ >= 0 && seconds - shown_at_ < every) return;
  shown_at_ = seconds;
  if (terminal_.shows_status()) {
    terminal_.show_status(line(progress));
  } else {
    terminal_.print_err(fmt::format("encoding: {}\n", fmt::join(facts(progress), ", ")));
  }
}

}  // namespace rhapsode::cli
