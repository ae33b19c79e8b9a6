#include "cli/add_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/quantity.h"

namespace rhapsode::cli {
namespace {

constexpr size_t kExamples = 3;
constexpr size_t kRemarks = 5;

struct Group {
  std::string reason;
  std::vector<std::string> sources;
};

// In the order of first appearance.
std::vector<Group> by_reason(const std::vector<SourceIssue>& issues) {
  std::vector<Group> groups;
  for (const SourceIssue& issue : issues) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& known) { return known.reason == issue.reason; });
    if (group == groups.end()) group = groups.insert(groups.end(), {issue.reason, {}});
    group->sources.push_back(issue.source);
  }
  return groups;
}

std::string group_line(const Group& group, const Terminal& terminal) {
  const size_t shown = std::min(kExamples, group.sources.size());
  const std::vector<std::string> examples(group.sources.begin(),
                                          group.sources.begin() + static_cast<std::ptrdiff_t>(shown));
  std::string line =
      fmt::format("  {} {}: {}", group.sources.size(), group.reason, fmt::join(examples, ", "));
  if (shown < group.sources.size()) line += fmt::format(", and {} more", group.sources.size() - shown);
  return terminal.shown(line) + "\n";
}

std::string issue_lines(const std::vector<SourceIssue>& issues, size_t most, const Terminal& terminal) {
  std::string text;
  for (size_t i = 0; i < std::min(most, issues.size()); ++i) {
    text += terminal.shown(fmt::format("  {}: {}", issues[i].source, issues[i].reason)) + "\n";
  }
  if (most < issues.size()) text += fmt::format("  and {} more (--verbose)\n", issues.size() - most);
  return text;
}

std::string counts_line(const AddReport& report) {
  std::string text = fmt::format("added {}", counted(static_cast<uint64_t>(report.added), "source"));
  if (report.updated > 0) text += fmt::format(", updated {}", report.updated);
  if (report.removed > 0) text += fmt::format(", removed {}", report.removed);
  if (report.unchanged > 0) text += fmt::format(", {} unchanged", report.unchanged);
  return text;
}

std::string work_line(const AddReport& report) {
  std::string text = fmt::format("{}, {} encoded", counted(static_cast<uint64_t>(report.passages), "passage"),
                                 counted(report.encoded_tokens, "token"));
  if (report.seconds > 0 && report.encoded_tokens > 0) {
    text += fmt::format(" at {}/s", show_rate(static_cast<double>(report.encoded_tokens) / report.seconds));
  }
  text += report.index_only ? ", keys and values to be made when first read"
                            : fmt::format(", {} of keys and values", show_bytes(report.kv_bytes));
  return text + fmt::format(", in {}", show_duration(report.seconds));
}

}  // namespace

std::string counted(uint64_t count, const char* thing) {
  return fmt::format("{} {}{}", show_whole(count), thing, count == 1 ? "" : "s");
}

std::string plan_text(const AddPlan& plan) {
  std::string text = fmt::format("{} new {}", plan.sources_new, plan.sources_new == 1 ? "source" : "sources");
  if (plan.sources_changed > 0) text += fmt::format(", {} changed", plan.sources_changed);
  if (plan.sources_unchanged > 0) text += fmt::format(", {} unchanged", plan.sources_unchanged);
  text += fmt::format(": {} to encode, ", counted(plan.tokens, "token"));
  text += plan.index_only ? std::string("keys and values to be made when first read")
                          : fmt::format("{} to store", show_bytes(plan.kv_bytes));
  return text + fmt::format(", about {}", show_duration(plan.seconds));
}

std::string report_text(const AddReport& report, bool verbose, const Terminal& terminal) {
  std::string text = counts_line(report) + "\n";
  if (report.encoded_tokens > 0 || report.passages > 0) text += work_line(report) + "\n";
  if (!report.skipped.empty()) {
    text += fmt::format("skipped {}\n", counted(report.skipped.size(), "source"));
    if (verbose) {
      text += issue_lines(report.skipped, report.skipped.size(), terminal);
    } else {
      for (const Group& group : by_reason(report.skipped)) text += group_line(group, terminal);
    }
  }
  if (!report.warnings.empty()) {
    text += terminal.paint(Style::kYellow, counted(report.warnings.size(), "remark")) + "\n" +
            issue_lines(report.warnings, verbose ? report.warnings.size() : kRemarks, terminal);
  }
  if (!report.failed.empty()) {
    text += terminal.paint(Style::kRed, fmt::format("failed {}", counted(report.failed.size(), "source"))) +
            "\n" + issue_lines(report.failed, report.failed.size(), terminal);
  }
  return text;
}

}  // namespace rhapsode::cli
