// `rhapsode remember`: records the facts of a message; `rhapsode facts`: lists them.
#include <algorithm>

#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/prompt.h"
#include "cli/table.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

std::string day_of(const std::string& time) {
  return time.substr(0, time.find('T'));
}

std::string described(const FactInfo& fact) {
  const std::string what = fact.subject + ": " + fact.attribute;
  return fact.action == FactAction::kRetracted ? what + " (taken back)" : what + ": " + fact.value;
}

void print_remembered(const RememberReport& remembered, Terminal& terminal) {
  const FactReport& report = remembered.report;
  for (const FactInfo& fact : report.facts) {
    terminal.print(fmt::format("{} {}\n", to_string(fact.action), printable(described(fact))));
  }
  for (const std::string& problem : report.problems) terminal.print_err(printable(problem) + "\n");
  if (report.facts.empty() && report.problems.empty()) {
    terminal.print(report.known > 0 ? "recorded before\n" : "no fact in this\n");
  }
}

void print_facts(const std::vector<FactInfo>& facts, bool history, Terminal& terminal) {
  if (facts.empty()) return terminal.print("no facts\n");
  Table table({{"subject"}, {"attribute"}, {"value"}, {"since"}, {"until"}, {"told"}, {"by"}});
  for (const FactInfo& fact : facts) {
    const bool retracted = fact.action == FactAction::kRetracted;
    const std::string since = fact.event_time.empty() ? "unknown" : day_of(fact.event_time);
    const std::string until = fact.current || !history ? "" : day_of(fact.valid_to);
    table.add({fact.subject, fact.attribute, retracted ? "(taken back)" : fact.value, since, until,
               fact.told.empty() ? "unknown" : day_of(fact.told), fact.speaker});
  }
  terminal.print(table.render(terminal));
}

}  // namespace

Result<int> run_remember(Invocation& invocation) {
  const MemorySettings& settings = invocation.settings.memory;
  HeardMessage message{invocation.arguments.front(), settings.speaker, settings.remember.at,
                       settings.remember.id, settings.filter.user};
  if (message.text == "-") {
    RH_TRY(message.text, read_standard_input("the message on standard input"));
  }
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kMake));
  RememberOptions options;
  if (settings.remember.ask_model) options.model = session.engine.get();
  RH_TRY(const RememberReport remembered, remember(*session.memory, message, options));
  if (invocation.settings.json) {
    Json json{{"memory", session.place.folder.string()}};
    json.update(remember_json(remembered));
    invocation.terminal.print(to_text(json));
  } else {
    print_remembered(remembered, invocation.terminal);
  }
  return kExitOk;
}

Result<int> run_facts(Invocation& invocation) {
  const SourceFilter& filter = invocation.settings.memory.filter;
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kCatalog));
  RH_TRY(std::vector<FactInfo> facts, session.memory->facts(filter));
  if (!invocation.arguments.empty()) {
    const std::string& subject = invocation.arguments.front();
    std::erase_if(facts, [&](const FactInfo& fact) { return fact.subject != subject; });
  }
  if (invocation.settings.json) {
    invocation.terminal.print(
        to_text({{"memory", session.place.folder.string()}, {"facts", facts_json(facts)}}));
  } else {
    print_facts(facts, filter.history, invocation.terminal);
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
