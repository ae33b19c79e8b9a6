// `rhapsode export`: a memory as one file.
#include "cli/command.h"
#include "cli/confirm.h"
#include "cli/json_output.h"
#include "cli/memory_session.h"
#include "cli/quantity.h"

namespace rhapsode::cli {

Result<int> run_export(Invocation& invocation) {
  namespace fs = std::filesystem;
  Terminal& terminal = invocation.terminal;
  const fs::path file = invocation.arguments.front();
  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kCatalog));
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    Confirmation confirmation(terminal, interrupts, invocation.settings.memory.yes);
    RH_TRY(const bool agreed,
           confirmation.ask(fmt::format("Replace {}?", file.string()),
                            fmt::format("{} exists; pass --yes to replace it", file.string())));
    if (interrupts.signal_number() != 0) return 128 + interrupts.signal_number();
    if (!agreed) {
      terminal.print_err("nothing was exported\n");
      return kExitFailed;
    }
  }
  terminal.show_status(fmt::format("Writing {} …", file.string()));
  RH_TRY_STATUS(session.memory->export_to(file, invocation.settings.memory.filter.all_users));
  terminal.clear_status();
  const uint64_t bytes = fs::file_size(file, ignored);
  const std::string folder = session.place.folder.string();
  terminal.print(
      invocation.settings.json
          ? to_text({{"memory", folder}, {"file", file.string()}, {"bytes", bytes}})
          : fmt::format("{} holds the memory at {} ({})\n", file.string(), folder, show_bytes(bytes)));
  return kExitOk;
}

}  // namespace rhapsode::cli
