// Ingester: what add() would do.
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/clock.h"
#include "recall/ingester.h"
#include "store/kv_codec.h"

namespace rhapsode::recall {

namespace {

// Below this an estimate of the time would cost more than it tells.
constexpr uint64_t kEstimateFrom = 4096;

}  // namespace

// Counted in the order of the sources, so that of equal ones the first is the new one.
struct Ingester::Planning {
  struct Coming {
    std::future<Result<std::vector<int>>> passages;  // their tokens
    store::ContentKey key;
    uint64_t bytes = 0;
    bool is_new = false;
    bool complete = false;
  };

  explicit Planning(int threads) : pool(threads) {}

  WorkerPool pool;
  std::deque<Coming> coming;
  uint64_t bytes = 0;                                  // of those
  std::set<std::pair<std::string, std::string>> keys;  // of contents that were counted
  AddPlan plan;
};

Result<double> Ingester::measured_tokens_per_s(bool index_only) {
  PassageTokens sample;
  sample.tokens.assign(std::min(256, runner_.most_rows()), 0);
  sample.text_tokens = static_cast<int>(sample.tokens.size());
  RH_TRY_STATUS(encoder_.prefix_pages());
  RH_TRY_STATUS(encoder_.encode(std::span(&sample, 1), index_only));  // the first of a shape also plans it
  const int64_t begin = now_ns();
  RH_TRY_STATUS(encoder_.encode(std::span(&sample, 1), index_only));
  return 1e3 * static_cast<double>(sample.tokens.size()) / ms_between(begin, now_ns());
}

void Ingester::count(Planning& planning, size_t most_coming) const {
  std::deque<Planning::Coming>& coming = planning.coming;
  while (coming.size() > most_coming || planning.bytes > kMostBytesAhead) {
    const Result<std::vector<int>> passages = coming.front().passages.get();
    const Planning::Coming source = std::move(coming.front());
    coming.pop_front();
    planning.bytes -= source.bytes;
    if (!passages.ok()) continue;  // add() reports it
    AddPlan& plan = planning.plan;
    ++(source.is_new ? plan.sources_new : plan.sources_changed);
    const auto key = std::pair(source.key.sha256, source.key.recipe);
    if (source.complete || !planning.keys.insert(key).second) continue;
    for (const int tokens : *passages) {
      plan.tokens += static_cast<uint64_t>(tokens);
      plan.kv_bytes += store::kv_extent_bytes(runner_.kv_shape(), setting_.stored_kv, tokens);
    }
  }
}

Result<AddPlan> Ingester::plan(const AddOptions& options) {
  Planning planning(setting_.threads);
  AddPlan& plan = planning.plan;
  RH_TRY(const std::vector<store::SourceRow> rows, catalog_.sources(store::Selection::stored()));
  std::map<std::string, int64_t> current;
  for (const store::SourceRow& row : rows) current[row.record.name] = row.content;
  Status failed;
  text::ScanCallbacks callbacks;
  callbacks.on_skip = [](const text::Skip&) {};
  callbacks.on_source = [&](text::SourceBytes source) {
    source.name = name_for(options.user, source.name);
    auto content = look_up(source, options.user);
    if (!content.ok()) {
      failed = content.error();
      return false;
    }
    const auto had = current.find(source.name);
    const bool complete = content->known && content->known->complete;
    if (had != current.end() && complete && content->known->id == had->second) {
      ++plan.sources_unchanged;
      return true;
    }
    Planning::Coming coming;
    coming.key = content->key;
    coming.bytes = source.bytes.size();
    coming.is_new = had == current.end();
    coming.complete = complete;
    planning.bytes += coming.bytes;
    coming.passages =
        planning.pool.run([this, read_as = content->read_as(source.name), cut = std::move(source)]() mutable {
          return cutter_.count_source(std::move(cut), read_as);
        });
    planning.coming.push_back(std::move(coming));
    count(planning, kAheadPerThread * static_cast<size_t>(planning.pool.threads()));
    return true;
  };
  text::ScanOptions scan{options.most_source_bytes, options.ignore_files, options.hidden};
  RH_TRY_STATUS(text::scan_sources(options.paths, scan, callbacks));
  RH_TRY_STATUS(failed);
  count(planning, 0);
  RH_TRY(const store::CatalogStats stats, catalog_.stats(setting_.kv_fingerprint));
  plan.index_only = options.index_only ||
                    (setting_.disk_cap_bytes > 0 && stats.kv_bytes + plan.kv_bytes > setting_.disk_cap_bytes);
  if (plan.index_only) plan.kv_bytes = 0;
  if (plan.tokens >= kEstimateFrom) {
    RH_TRY(const double speed, measured_tokens_per_s(plan.index_only));
    plan.seconds = static_cast<double>(plan.tokens) / speed;
  }
  return plan;
}

}  // namespace rhapsode::recall
