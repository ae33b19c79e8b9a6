// `rhapsode stats`: what a memory takes, by purpose, and how often its KV was there when it was needed.
#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/quantity.h"
#include "cli/table.h"

namespace rhapsode::cli {
namespace {

std::string search_of(const MemoryStats& stats) {
  if (stats.found_on == "cuda") return "by scanning all routing keys on the GPU";
  if (!stats.approximate) return "by scanning all routing keys";
  const std::string index =
      fmt::format("by an index of {}", show_whole(static_cast<uint64_t>(stats.indexed_passages)));
  if (stats.recall_questions == 0) return index + "; no question was checked against the scan yet";
  return fmt::format(
      "{}; {:.1f} % of what the scan finds, {:.1f} % at worst, in {} questions that were checked", index,
      100 * stats.recall, 100 * stats.lowest_recall,
      show_whole(static_cast<uint64_t>(stats.recall_questions)));
}

void print_stats(const MemoryStats& stats, const std::string& folder, Terminal& terminal) {
  const auto whole = [](int count) { return show_whole(static_cast<uint64_t>(count)); };
  std::vector<std::pair<std::string, std::string>> pairs{
      {"memory", folder},
      {"model", stats.model},
      {"fingerprint", stats.fingerprint},
      {"sources", fmt::format("{} in {} versions, {} of them distinct", whole(stats.sources),
                              whole(stats.versions), whole(stats.contents))},
      {"passages", fmt::format("{}, {} with stored keys and values", whole(stats.passages),
                               whole(stats.passages_with_kv))},
      {"tokens", show_whole(stats.tokens)}};
  if (stats.kv_hits + stats.kv_misses > 0) {
    pairs.emplace_back("passages read", fmt::format("{} from stored keys and values, {} from text",
                                                    show_whole(stats.kv_hits), show_whole(stats.kv_misses)));
  }
  if (stats.foreign_kv_entries > 0) {
    pairs.emplace_back("of other models",
                       fmt::format("{} entries, unused", show_whole(stats.foreign_kv_entries)));
  }
  if (stats.quarantined > 0) {
    pairs.emplace_back("set aside", fmt::format("{} damaged extents", show_whole(stats.quarantined)));
  }
  pairs.emplace_back("passages are found", search_of(stats));
  if (!stats.device_problem.empty()) pairs.emplace_back("not on the GPU", stats.device_problem);
  if (!stats.index_problem.empty()) pairs.emplace_back("no index", stats.index_problem);
  terminal.print(render_pairs(pairs, terminal) + "\n");

  Table table({{"on disk"}, {"size", true}});
  table.add({"texts", show_bytes(stats.text_bytes)});
  table.add({"catalog", show_bytes(stats.catalog_bytes)});
  table.add({"routing keys", show_bytes(stats.code_bytes)});
  if (stats.index_bytes > 0) table.add({"index", show_bytes(stats.index_bytes)});
  table.add({"keys and values", show_bytes(stats.kv_bytes)});
  table.add({"  their limit", stats.kv_cap_bytes == 0 ? "none" : show_bytes(stats.kv_cap_bytes)});
  table.add({"to be reclaimed", show_bytes(stats.stale_bytes)});
  terminal.print(table.render(terminal));
}

}  // namespace

Result<int> run_stats(Invocation& invocation) {
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kCatalog));
  RH_TRY(const MemoryStats stats, session.memory->stats(invocation.settings.memory.filter.all_users));
  const std::string folder = session.place.folder.string();
  if (invocation.settings.json) {
    Json json{{"memory", folder}};
    json.update(stats_json(stats));
    invocation.terminal.print(to_text(json));
  } else {
    print_stats(stats, folder, invocation.terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
