#include "eval/memory_talk.h"

#include <unistd.h>

#include <fstream>

#include "io/file.h"

namespace rhapsode::eval {

Result<std::unique_ptr<MemoryTalk>> MemoryTalk::open(const MemorySubjectOptions& options,
                                                     int live_budget_tokens) {
  std::unique_ptr<MemoryTalk> talk(new MemoryTalk);
  std::error_code ignored;
  const std::filesystem::path folder = options.folder / "memory";
  if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_empty(folder, ignored)) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "{} holds a memory: a long conversation is measured from its beginning, so name a folder "
        "without one",
        folder.string());
  }
  RH_TRY(talk->engine_, Engine::open(options.engine));
  RH_TRY_STATUS(make_directories(options.folder));
  RH_TRY(talk->memory_, Memory::open(*talk->engine_, memory_options(options, "memory")));
  ConversationOptions opening;
  opening.name = "long";
  opening.live_budget_tokens = live_budget_tokens;
  RH_TRY(talk->conversation_, Conversation::open(*talk->memory_, opening));
  RH_TRY(const MemoryStats stats, talk->memory_->stats());
  talk->info_ = {talk->engine_->model().name, talk->engine_->model().weights, stats.fingerprint};
  return talk;
}

Status MemoryTalk::remember(const HeardMessage& message) {
  RH_TRY_STATUS(rhapsode::remember(*memory_, message));
  return {};
}

Result<std::vector<FactInfo>> MemoryTalk::facts() {
  return memory_->facts({});
}

uint64_t MemoryTalk::resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t whole = 0, resident = 0;
  if (!(in >> whole >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace rhapsode::eval
