#include "engine/engine_passes.h"

#include <algorithm>

namespace rhapsode::engine {

namespace {

Error closing() {
  return make_error(ErrorKind::kCancelled, "the engine is closing");
}

}  // namespace

Status EnginePasses::run(const recall::PassBatch& batch, model::PassGoal goal, const OnResult& on_result) {
  Status status;
  const bool ran = scheduler_.execute([&] {
    auto result = runner_.evaluate({batch.tokens, &batch.plan, batch.output_rows}, goal);
    if (result.ok()) {
      on_result(result.value());
    } else {
      status = result.error();
    }
  });
  return ran ? status : Status(closing());
}

Result<std::vector<store::PagePin>> EnginePasses::take_pages(int count) {
  std::vector<store::PagePin> pages = scheduler_.take_pages(count);
  if (static_cast<int>(pages.size()) == count) return pages;
  return make_error(
      ErrorKind::kNoSpace,
      "{} more pages of KV do not fit the cap beside what is being read: raise --kv-cap, or read "
      "less with --budget",
      count);
}

int EnginePasses::most_rows() const {
  const int limit = runner_.most_rows();
  const int rows = std::max(1, scheduler_.job_rows());
  return limit > 0 ? std::min(limit, rows) : rows;
}

}  // namespace rhapsode::engine
