// `rhapsode show`: one source: its versions, its passages and where their KV lies, or its text.
#include "cli/answer_output.h"
#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/quantity.h"
#include "cli/table.h"

namespace rhapsode::cli {
namespace {

void print_detail(const SourceDetail& detail, Terminal& terminal) {
  const SourceInfo& info = detail.info;
  const auto known = [](const std::string& text) { return text.empty() ? std::string("unknown") : text; };
  std::vector<std::pair<std::string, std::string>> pairs{
      {"source", info.source},
      {"kind", info.kind},
      {"title", info.title.empty() ? "none" : info.title},
      {"tags", info.tags.empty() ? "none" : fmt::format("{}", fmt::join(info.tags, ", "))},
      {"added", info.added},
      {"event time", known(info.event_time)},
      {"size", fmt::format("{}, {} tokens in {} passages", show_bytes(info.bytes), show_whole(info.tokens),
                           show_whole(static_cast<uint64_t>(info.passages)))}};
  const auto tell = [&](const char* label, const std::vector<std::string>& names) {
    if (!names.empty()) pairs.emplace_back(label, fmt::format("{}", fmt::join(names, ", ")));
  };
  if (!info.user.empty()) pairs.emplace_back("user", info.user);
  if (!info.identifier.empty()) pairs.emplace_back("identifier", info.identifier);
  tell("superseded by", info.superseded_by);
  tell("supersedes", info.supersedes);
  for (const std::string& problem : detail.problems) pairs.emplace_back("note", problem);
  terminal.print(render_pairs(pairs, terminal) + "\n");

  Table versions({{"version", true}, {"added"}, {"replaced"}, {"event time"}, {"size", true}, {"SHA-256"}});
  for (const VersionInfo& version : detail.versions) {
    versions.add({fmt::format("{}", version.version), version.added,
                  version.replaced.empty() ? "current" : version.replaced, known(version.event_time),
                  show_bytes(version.bytes), version.sha256});
  }
  terminal.print(versions.render(terminal) + "\n");

  Table passages(
      {{"passage", true}, {"bytes"}, {"line", true}, {"page", true}, {"tokens", true}, {"KV"}, {"header"}});
  for (const PassageInfo& passage : detail.passages) {
    passages.add({fmt::format("{}", passage.id), fmt::format("{}-{}", passage.start_byte, passage.end_byte),
                  fmt::format("{}", passage.line), passage.page > 0 ? fmt::format("{}", passage.page) : "",
                  fmt::format("{}", passage.tokens), words_for(passage.tier), passage.header});
  }
  terminal.print(passages.render(terminal));
}

Result<int> print_text(Memory& memory, const std::string& source, Invocation& invocation) {
  const SourceFilter& filter = invocation.settings.memory.filter;
  const auto text = memory.text(source, filter);
  if (!text.ok()) return explain_unknown(memory, source, filter, text.error());
  if (invocation.settings.json) {
    invocation.terminal.print(to_text({{"source", source}, {"text", *text}}));
  } else {
    invocation.terminal.print(invocation.terminal.shown(*text));
  }
  return kExitOk;
}

}  // namespace

Result<int> run_show(Invocation& invocation) {
  const std::string& source = invocation.arguments.front();
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kCatalog));
  if (invocation.settings.memory.text) return print_text(*session.memory, source, invocation);
  const SourceFilter& filter = invocation.settings.memory.filter;
  const auto detail = session.memory->show(source, filter);
  if (!detail.ok()) return explain_unknown(*session.memory, source, filter, detail.error());
  if (invocation.settings.json) {
    invocation.terminal.print(to_text(detail_json(*detail)));
  } else {
    print_detail(*detail, invocation.terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
