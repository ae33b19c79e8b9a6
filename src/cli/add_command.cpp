// `rhapsode add`: documents into a memory.
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "cli/add_progress.h"
#include "cli/add_report.h"
#include "cli/command.h"
#include "cli/confirm.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"

namespace rhapsode::cli {
namespace {

constexpr double kAskAboveSeconds = 120;
constexpr size_t kMostNames = 20;  // listed before a question

// A folder that is gone when this is: a plan needs a memory to plan for, and must not leave one behind.
class PassingFolder {
 public:
  static Result<PassingFolder> make() {
    std::error_code error;
    std::string pattern = (std::filesystem::temp_directory_path(error) / "rhapsode-plan-XXXXXX").string();
    if (error || !mkdtemp(pattern.data())) return make_system_error(errno, "cannot make a folder to plan in");
    return PassingFolder(pattern);
  }
  PassingFolder(PassingFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PassingFolder& operator=(PassingFolder&&) = delete;
  ~PassingFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit PassingFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

AddOptions add_options(const Invocation& invocation) {
  AddOptions options = invocation.settings.memory.add;
  options.user = invocation.settings.memory.filter.user;
  options.paths = invocation.arguments;
  options.tags = invocation.settings.memory.filter.tags;
  return options;
}

Result<AddPlan> make_plan(Memory& memory, const AddOptions& options, Terminal& terminal) {
  terminal.show_status("Looking at the sources …");
  auto plan = memory.plan(options);
  terminal.clear_status();
  return plan;
}

// What is done under Ctrl-C's eyes: the questions and the work.
class Adder {
 public:
  Adder(Invocation& invocation, const MemorySession& session, const InterruptGuard& interrupts)
      : settings_(invocation.settings.memory),
        json_(invocation.settings.json),
        terminal_(invocation.terminal),
        session_(session),
        interrupts_(interrupts),
        confirmation_(terminal_, interrupts, settings_.yes),
        progress_(terminal_),
        options_(add_options(invocation)) {
    options_.on_progress = [this](const AddProgress& now) {
      progress_.update(now, static_cast<double>(now_ns()) * 1e-9);
      return interrupts_.signal_number() == 0;
    };
    options_.confirm_removal = [this](const auto& names) { return confirm_removal(names); };
  }

  Result<int> run(const std::optional<AddPlan>& plan) {
    if (plan && plan->seconds > kAskAboveSeconds) {
      RH_TRY(const bool agreed, agree_on(*plan));
      if (!agreed) return stopped() ? stop() : decline();
    }
    RH_TRY(const AddReport report, session_.memory->add(options_));
    terminal_.clear_status();
    print(report);
    if (stopped()) return stop();
    RH_TRY_STATUS(refused_);
    return report.failed.empty() ? kExitOk : kExitFailed;
  }

 private:
  bool stopped() const { return interrupts_.signal_number() != 0; }

  Result<bool> agree_on(const AddPlan& plan) {
    if (terminal_.traits().err_is_terminal) terminal_.print_err(plan_text(plan) + "\n");
    return confirmation_.ask(
        "Go on?", fmt::format("{} of work; pass --yes to begin without being asked", plan_text(plan)));
  }

  bool confirm_removal(const std::vector<std::string>& names) {
    removed_ = names;
    const std::string what = counted(names.size(), "source");
    if (confirmation_.asks()) {
      terminal_.print_err(fmt::format("gone from the given folders:\n{}", indented_list(names, kMostNames)));
    }
    const auto agreed = confirmation_.ask(fmt::format("Remove {} from the memory?", what),
                                          fmt::format("{} gone from the given folders {} kept; pass --yes to "
                                                      "remove what is gone without being asked",
                                                      what, names.size() == 1 ? "was" : "were"));
    if (!agreed.ok()) refused_ = agreed.error();
    const bool removes = agreed.ok() && *agreed;
    if (!removes) removed_.clear();
    return removes;
  }

  void print(const AddReport& report) {
    if (json_) {
      Json json{{"memory", session_.place.folder.string()}, {"made", session_.made}};
      json.update(add_json(report));
      json["removed_sources"] = removed_;
      return terminal_.print(to_text(json));
    }
    terminal_.print(report_text(report, settings_.verbose, terminal_));
    if (removed_.empty()) return;
    const size_t most = settings_.verbose ? removed_.size() : kMostNames;
    terminal_.print(fmt::format("gone and removed:\n{}", indented_list(removed_, most)));
  }

  Result<int> decline() {
    terminal_.print_err("nothing was added\n");
    return kExitFailed;
  }

  Result<int> stop() {
    terminal_.print_err("stopped; the same command goes on from here\n");
    return 128 + interrupts_.signal_number();
  }

  const MemorySettings& settings_;
  const bool json_;
  Terminal& terminal_;
  const MemorySession& session_;
  const InterruptGuard& interrupts_;
  Confirmation confirmation_;
  AddProgressLine progress_;
  AddOptions options_;
  std::vector<std::string> removed_;
  Status refused_;
};

void announce(const MemorySession& session, Terminal& terminal) {
  const std::string why = session.place.why.empty()
                              ? ""
                              : fmt::format(" ({}; --memory FOLDER chooses another)", session.place.why);
  terminal.print_err(fmt::format("new memory at {}{}\n", session.place.folder.string(), why));
}

Result<int> run_for_real(Invocation& invocation, const MemoryPlace& place) {
  RH_TRY(const MemorySession session, open_session(invocation, place, MemoryUse::kMake));
  if (session.made && !invocation.settings.json) announce(session, invocation.terminal);
  const AddOptions options = add_options(invocation);
  std::optional<AddPlan> plan;
  // Standard input can be read only once, so nobody knows beforehand what it brings.
  if (std::count(options.paths.begin(), options.paths.end(), "-") == 0) {
    RH_TRY(plan, make_plan(*session.memory, options, invocation.terminal));
  }
  // Not before: Ctrl-C ends what only looks.
  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  return Adder(invocation, session, interrupts).run(plan);
}

Result<int> run_dry(Invocation& invocation, const MemoryPlace& place) {
  const auto print_plan = [&](const MemorySession& session) -> Result<int> {
    RH_TRY(const AddPlan plan, make_plan(*session.memory, add_options(invocation), invocation.terminal));
    invocation.terminal.print(invocation.settings.json ? to_text(plan_json(plan)) : plan_text(plan) + "\n");
    return kExitOk;
  };
  if (identify_memory(place.folder).ok()) {
    RH_TRY(const MemorySession session, open_session(invocation, place, MemoryUse::kLook));
    return print_plan(session);
  }
  RH_TRY(const PassingFolder folder, PassingFolder::make());
  RH_TRY(const MemorySession session, open_session(invocation, {folder.path(), place.why}, MemoryUse::kMake));
  return print_plan(session);
}

// A slip is told before a model is loaded or a memory made.
Status check_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-") {
      if (isatty(STDIN_FILENO) != 1) continue;
      return make_error(ErrorKind::kInvalidArgument,
                        "- reads standard input, which is the terminal; give it through a pipe");
    }
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) continue;
    if (!error || error == std::errc::no_such_file_or_directory) {
      return make_error(ErrorKind::kNotFound, "there is no {}; nothing was added", path);
    }
    return make_system_error(error.value(), fmt::format("cannot look at {}", path));
  }
  return {};
}

}  // namespace

Result<int> run_add(Invocation& invocation) {
  const MemorySettings& settings = invocation.settings.memory;
  const auto& paths = invocation.arguments;
  RH_TRY_STATUS(check_paths(paths));
  const MemoryPlace place = place_for_memory(settings.options.folder, paths, process_places());
  return settings.dry_run ? run_dry(invocation, place) : run_for_real(invocation, place);
}

}  // namespace rhapsode::cli
