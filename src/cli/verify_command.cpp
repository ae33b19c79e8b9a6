// `rhapsode verify`: checks every checksum of a memory and encodes a sample again.
#include "cli/add_report.h"
#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"

namespace rhapsode::cli {
namespace {

void print_report(const VerifyReport& report, Terminal& terminal) {
  const auto count = [](int number, const char* thing) {
    return counted(static_cast<uint64_t>(number), thing);
  };
  const std::string checked =
      fmt::format("{} and {} checked, {} encoded again (largest difference {:.2g})",
                  count(report.extents_checked, "extent"), count(report.texts_checked, "text"),
                  count(report.passages_encoded, "passage"), report.largest_difference);
  if (report.problems.empty()) {
    terminal.print(fmt::format("{} {}\n", terminal.paint(Style::kGreen, "sound:"), checked));
    return;
  }
  terminal.print(fmt::format(
      "{} {}\n",
      terminal.paint(Style::kRed, count(static_cast<int>(report.problems.size()), "problem") + ":"),
      checked));
  for (const SourceIssue& problem : report.problems) {
    terminal.print(terminal.shown(fmt::format("  {}: {}", problem.source, problem.reason)) + "\n");
  }
}

}  // namespace

Result<int> run_verify(Invocation& invocation) {
  VerifyOptions options = invocation.settings.memory.verify;
  options.seed = invocation.settings.request.sampling.seed;
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kLook));
  invocation.terminal.show_status("Checking …");
  options.all_users = invocation.settings.memory.filter.all_users;
  RH_TRY(const VerifyReport report, session.memory->verify(options));
  invocation.terminal.clear_status();
  if (invocation.settings.json) {
    invocation.terminal.print(to_text(verify_json(report)));
  } else {
    print_report(report, invocation.terminal);
  }
  return report.problems.empty() ? kExitOk : kExitFailed;
}

}  // namespace rhapsode::cli
