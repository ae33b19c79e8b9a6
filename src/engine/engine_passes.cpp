#include "engine/engine_passes.h"

#include <algorithm>
#include <numeric>

namespace rhapsode::engine {

namespace {

Error closing() {
  return make_error(ErrorKind::kCancelled, "the engine is closing");
}

}  // namespace

Status EnginePasses::run(const recall::PassBatch& batch, model::PassGoal goal, const OnResult& on_result) {
  Status status;
  const bool ran = scheduler_.execute([&] {
    auto result = runner_.evaluate(
        {batch.tokens, &batch.plan, batch.output_rows, false, batch.targets, batch.pools}, goal);
    if (result.ok()) {
      on_result(result.value());
    } else {
      status = result.error();
    }
  });
  return ran ? status : Status(closing());
}

Result<recall::AttentionMass> EnginePasses::attention_mass(const recall::PassBatch& batch) {
  Result<recall::AttentionMass> mass = recall::AttentionMass();
  const auto job = [&]() -> Status {
    RH_TRY_STATUS(runner_.evaluate({batch.tokens, &batch.plan, {}, true, {}}, model::PassGoal::kEncode));
    for (size_t s = 0; s < batch.plan.sequences.size(); ++s) {
      RH_TRY(const std::span<const double> slots, runner_.backend().mass_per_token(static_cast<int>(s)));
      mass->emplace_back(slots.begin(), slots.end());
    }
    return {};
  };
  const bool ran = scheduler_.execute([&] {
    if (Status status = job(); !status.ok()) mass = status.error();
  });
  if (!ran) return closing();
  return mass;
}

Result<std::vector<store::PagePin>> EnginePasses::take_pages(std::span<const int> counts) {
  const int count = std::accumulate(counts.begin(), counts.end(), 0);
  std::vector<store::PagePin> pages = scheduler_.take_pages(counts);
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
