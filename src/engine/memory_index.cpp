// The index of a large memory: kept in step with the catalog, and what its monitor saw.
#include "engine/memory_impl.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace rhapsode {

namespace {

constexpr std::string_view kRecallSetting = "index_recall";
constexpr std::string_view kChunksSetting = "index_chunks";

std::string text_of(const index::RecallReport& report) {
  return fmt::format("{} {:.9g} {:.9g}", report.sampled, report.recall_sum, report.lowest);
}

index::RecallReport report_of(const std::string& text) {
  index::RecallReport report;
  long long sampled = 0;
  const int fields = std::sscanf(text.c_str(), "%lld %lf %lf", &sampled, &report.recall_sum, &report.lowest);
  report.sampled = sampled;
  return fields == 3 && sampled > 0 ? report : index::RecallReport{};
}

}  // namespace

Result<std::unique_ptr<recall::Finder>> Memory::Impl::make_finder(int dimensions, int threads) const {
  // The same whether a model is loaded or not: a memory belongs to one.
  RH_TRY(const std::optional<std::string> kept_whitening, catalog->setting("whitening"));
  RH_TRY(const std::optional<std::string> kept_model, catalog->setting("model_id"));
  recall::FinderOptions finding;
  finding.folder = options.folder / "index";
  finding.key = whitening ? whitening->id() + ":" + model_id
                          : kept_whitening.value_or("") + ":" + kept_model.value_or("");
  finding.dimensions = dimensions;
  finding.read_only = options.read_only;
  RH_TRY(const std::optional<std::string> kept_chunks, catalog->setting(kChunksSetting));
  if (options.index_chunks) {
    finding.least_chunks = static_cast<int64_t>(std::min<uint64_t>(*options.index_chunks, INT64_MAX));
  } else if (kept_chunks) {
    finding.least_chunks = std::atoll(kept_chunks->c_str());
  }
  finding.threads = threads;
  if (engine && engine->runner->backend().searches_codes()) {
    finding.device = [this](int width) { return engine->runner->backend().new_code_search(width); };
  }
  auto made = std::make_unique<recall::Finder>(std::move(finding));
  RH_TRY(const std::optional<std::string> samples, catalog->setting(kRecallSetting));
  made->add_samples(report_of(samples.value_or("")));
  return made;
}

Status Memory::Impl::sync_index() {
  const auto states = [this](const std::string& sentence) { return router->sentence_states(sentence); };
  if (options.index_chunks) {
    RH_TRY_STATUS(
        catalog->set_settings({{std::string(kChunksSetting), std::to_string(*options.index_chunks)}}));
  }
  return finder->sync(*catalog, states);
}

void Memory::Impl::keep_recall_samples() {
  const index::RecallReport fresh = finder->take_new_samples();
  if (fresh.sampled == 0) return;
  with_writer([&](store::Catalog& writer) -> Status {
    RH_TRY(const std::optional<std::string> kept, writer.setting(kRecallSetting));
    index::FindMonitor sum;
    sum.add(report_of(kept.value_or("")));
    sum.add(fresh);
    return writer.set_settings({{std::string(kRecallSetting), text_of(sum.report())}});
  });
}

}  // namespace rhapsode
