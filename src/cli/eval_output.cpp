#include "cli/eval_output.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/result.h"
#include "cli/table.h"

namespace rhapsode::cli {
namespace {

using eval::ContextSummary;
using eval::GroupSummary;
using eval::Interval;

// More would not fit a terminal; what does not fit goes into a table below.
constexpr size_t kMetricsInTable = 6;

int digits_for(double value) {
  const double size = std::abs(value);
  return size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
}

// What a difference is marked with when its interval leaves out 0.
std::string show_difference(const Interval& interval) {
  const int digits = digits_for(interval.mean);
  return fmt::format("{:+.{}f} ±{:.{}f}{}", interval.mean, digits, interval.half_width(), digits,
                     interval.excludes_zero() ? "*" : " ");
}

using Pick = const std::map<std::string, Interval>& (*)(const ContextSummary&);
const std::map<std::string, Interval>& means(const ContextSummary& context) {
  return context.metrics;
}
const std::map<std::string, Interval>& differences(const ContextSummary& context) {
  return context.differences;
}

// Metrics that a row of the table has, of those asked for.
std::vector<std::string> held_by_any(const GroupSummary& group, const std::vector<std::string>& metrics,
                                     Pick pick) {
  std::vector<std::string> held;
  for (const std::string& metric : metrics) {
    if (std::any_of(group.contexts.begin(), group.contexts.end(),
                    [&](const ContextSummary& context) { return pick(context).contains(metric); })) {
      held.push_back(metric);
    }
  }
  return held;
}

std::string render_part(const GroupSummary& group, const std::vector<std::string>& metrics, Pick pick,
                        const Terminal& terminal) {
  std::vector<Column> columns{{group.group}, {"n", true}};
  for (const std::string& metric : metrics) columns.push_back({metric, true});
  Table table(columns);
  for (const ContextSummary& context : group.contexts) {
    std::vector<std::string> cells{context.context, fmt::format("{}", context.questions)};
    bool any = false;
    for (const std::string& metric : metrics) {
      const auto found = pick(context).find(metric);
      const bool there = found != pick(context).end();
      any |= there;
      cells.push_back(!there          ? ""
                      : pick == means ? show_interval(found->second)
                                      : show_difference(found->second));
    }
    if (any) table.add(std::move(cells));
  }
  return table.render(terminal);
}

std::string render_group(const GroupSummary& group, Pick pick, const Terminal& terminal) {
  const std::vector<std::string> metrics = held_by_any(group, eval::ordered_metrics(group), pick);
  std::string text;
  for (size_t begin = 0; begin < metrics.size(); begin += kMetricsInTable) {
    const size_t end = std::min(begin + kMetricsInTable, metrics.size());
    text += '\n' + render_part(group,
                               {metrics.begin() + static_cast<std::ptrdiff_t>(begin),
                                metrics.begin() + static_cast<std::ptrdiff_t>(end)},
                               pick, terminal);
  }
  return text;
}

}  // namespace

std::string show_interval(const Interval& interval) {
  const int digits = digits_for(interval.mean);
  return fmt::format("{:.{}f} ±{:.{}f}", interval.mean, digits, interval.half_width(), digits);
}

std::string render_windows(const std::vector<eval::Record>& records, const Terminal& terminal) {
  constexpr std::array<const char*, 9> kShown{"turn_ms",     "turn_p95_ms",        "say_ms",
                                              "say_p95_ms",  "route_ms",           "route_p95_ms",
                                              "remember_ms", "ms_per_1000_tokens", "resident_mb"};
  std::vector<Column> columns{{"turns"}};
  for (const char* name : kShown) columns.push_back({name, true});
  Table table(columns);
  for (const eval::Record& record : records) {
    if (record.group != "turns") continue;
    std::vector<std::string> cells{record.id};
    for (const char* name : kShown) {
      const auto found = record.scores.find(name);
      const bool there = found != record.scores.end();
      cells.push_back(there ? fmt::format("{:.{}f}", found->second, std::min(digits_for(found->second), 2))
                            : "");
    }
    table.add(std::move(cells));
  }
  return table.render(terminal);
}

std::string render_summary(const eval::Summary& summary, const Terminal& terminal) {
  std::string text;
  for (const GroupSummary& group : summary.groups) text += render_group(group, means, terminal);
  std::string paired;
  for (const GroupSummary& group : summary.groups) paired += render_group(group, differences, terminal);
  if (!paired.empty()) {
    text += fmt::format("\nPaired differences from {} (*: 0 lies outside of the 95 % interval)\n{}",
                        summary.baseline.empty() ? "the first file" : summary.baseline, paired);
  }
  for (const GroupSummary& group : summary.groups) {
    for (const ContextSummary& context : group.contexts) {
      if (context.errors == 0 || (group.group == "all") != (summary.groups.size() > 1)) continue;
      const auto reason = summary.failures.find(context.context);
      text += fmt::format("\n{}: {} questions failed, the first because {}\n", context.context,
                          context.errors, reason == summary.failures.end() ? "of an error" : reason->second);
    }
  }
  return text;
}

}  // namespace rhapsode::cli
