// `rhapsode import`: a memory out of the file that `export` wrote.
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/memory_place.h"
#include "rhapsode/memory.h"

namespace rhapsode::cli {

Result<int> run_import(Invocation& invocation) {
  Terminal& terminal = invocation.terminal;
  const std::filesystem::path file = invocation.arguments.front();
  const MemoryPlace place = place_for_memory(invocation.settings.memory.options.folder, {}, process_places());
  if (identify_memory(place.folder).ok()) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "there is a memory at {} already; --memory FOLDER names a folder that is absent or empty",
        place.folder.string());
  }
  terminal.show_status(fmt::format("Reading {} …", file.string()));
  RH_TRY_STATUS(Memory::import_from(file, place.folder));
  RH_TRY(const MemoryIdentity identity, identify_memory(place.folder));
  terminal.clear_status();
  if (invocation.settings.json) {
    terminal.print(to_text({{"memory", place.folder.string()},
                            {"file", file.string()},
                            {"model", identity.model_name},
                            {"model_path", identity.model_path.string()},
                            {"fingerprint", identity.fingerprint}}));
  } else {
    terminal.print(fmt::format("the memory of {} is at {}, made with {}\n", file.string(),
                               place.folder.string(), identity.model_name));
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
