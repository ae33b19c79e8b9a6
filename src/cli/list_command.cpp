// `rhapsode list`: the sources a memory holds.
#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/quantity.h"
#include "cli/table.h"

namespace rhapsode::cli {

Result<int> run_list_sources(Invocation& invocation) {
  Terminal& terminal = invocation.terminal;
  const SourceFilter& filter = invocation.settings.memory.filter;
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kCatalog));
  RH_TRY_STATUS(check_filter(*session.memory, filter));
  RH_TRY(const auto sources, session.memory->list(filter));
  if (invocation.settings.json) {
    Json list = Json::array();
    for (const SourceInfo& source : sources) list.push_back(source_json(source));
    terminal.print(to_text({{"memory", session.place.folder.string()}, {"sources", std::move(list)}}));
    return kExitOk;
  }
  if (sources.empty()) {
    const bool all = filter.sources.empty() && filter.tags.empty() && filter.as_of.empty();
    terminal.print(all ? "the memory holds no sources\n" : "no source is like that\n");
    return kExitOk;
  }
  Table table({{"source", false, true},
               {"kind"},
               {"versions", true},
               {"passages", true},
               {"tokens", true},
               {"size", true},
               {"tags"},
               {"superseded by"}});
  for (const SourceInfo& source : sources) {
    table.add({source.source, source.kind, fmt::format("{}", source.versions),
               show_whole(static_cast<uint64_t>(source.passages)), show_whole(source.tokens),
               show_bytes(source.bytes), fmt::format("{}", fmt::join(source.tags, ", ")),
               fmt::format("{}", fmt::join(source.superseded_by, ", "))});
  }
  terminal.print(table.render(terminal));
  return kExitOk;
}

}  // namespace rhapsode::cli
