// `rhapsode forget`: erases sources from a memory.
#include "cli/add_report.h"
#include "cli/command.h"
#include "cli/confirm.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/quantity.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr size_t kMostNames = 20;  // listed before the question
constexpr int kAnswerColumns = 80;

class Forgetter {
 public:
  Forgetter(Invocation& invocation, const InterruptGuard& interrupts)
      : settings_(invocation.settings),
        terminal_(invocation.terminal),
        interrupts_(interrupts),
        confirmation_(terminal_, interrupts, settings_.memory.yes) {
    options_.sources = invocation.arguments;
    options_.tags = settings_.memory.filter.tags;
    options_.derived = settings_.memory.derived;
    options_.user = settings_.memory.filter.user;
    options_.all_users = settings_.memory.filter.all_users;
    options_.confirm = [this](const auto& names) { return confirm(names); };
  }

  Result<int> run(Memory& memory) {
    SourceFilter named = settings_.memory.filter;
    named.sources = options_.sources;
    named.history = true;
    RH_TRY_STATUS(check_filter(memory, named));
    RH_TRY(derived_, memory.derived(options_));
    RH_TRY(const ForgetReport report, memory.forget(options_));
    terminal_.clear_status();
    RH_TRY_STATUS(refused_);
    print(report);
    if (interrupts_.signal_number() != 0) return 128 + interrupts_.signal_number();
    return declined_ ? kExitFailed : kExitOk;
  }

 private:
  bool confirm(const std::vector<std::string>& names) {
    const std::string what = counted(names.size(), "source");
    if (confirmation_.asks()) terminal_.print_err(indented_list(names, kMostNames));
    if (!settings_.json || confirmation_.asks()) tell_derived();
    const auto agreed = confirmation_.ask(
        fmt::format("Forget {} for ever?", what),
        fmt::format("{} would be forgotten; pass --yes to do it without being asked", what));
    if (!agreed.ok()) refused_ = agreed.error();
    declined_ = !agreed.ok() || !*agreed;
    if (!declined_) terminal_.show_status("Erasing …");
    return !declined_;
  }

  void tell_derived() {
    if (derived_.empty()) return;
    terminal_.print_err(
        fmt::format("{} in conversations {} given with this in view{}:\n", counted(derived_.size(), "answer"),
                    derived_.size() == 1 ? "was" : "were",
                    options_.derived ? ", and will be erased" : "; they stay unless --derived is given"));
    std::vector<std::string> lines;
    for (const DerivedAnswer& answer : derived_) {
      lines.push_back(fmt::format("{} #{}: {}", answer.conversation, answer.message,
                                  clip_text(printable(answer.text), kAnswerColumns)));
    }
    terminal_.print_err(indented_list(lines, kMostNames));
  }

  void print(const ForgetReport& report) {
    if (settings_.json) {
      terminal_.print(to_text({{"sources", report.sources},
                               {"passages", report.passages},
                               {"bytes", report.bytes},
                               {"derived", derived_json(report.derived)},
                               {"derived_erased", settings_.memory.derived && !declined_}}));
    } else if (declined_) {
      terminal_.print_err("nothing was forgotten\n");
    } else {
      terminal_.print(fmt::format("forgot {}: {}, {} freed\n", counted(report.sources.size(), "source"),
                                  counted(static_cast<uint64_t>(report.passages), "passage"),
                                  show_bytes(report.bytes)));
    }
  }

  const Settings& settings_;
  Terminal& terminal_;
  const InterruptGuard& interrupts_;
  Confirmation confirmation_;
  ForgetOptions options_;
  std::vector<DerivedAnswer> derived_;
  bool declined_ = false;
  Status refused_;
};

}  // namespace

Result<int> run_forget(Invocation& invocation) {
  if (invocation.arguments.empty() && invocation.settings.memory.filter.tags.empty()) {
    return make_error(ErrorKind::kInvalidArgument,
                      "forget needs a SOURCE or --tag TAG; `rhapsode list` shows what there is");
  }
  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kChange));
  return Forgetter(invocation, interrupts).run(*session.memory);
}

}  // namespace rhapsode::cli
