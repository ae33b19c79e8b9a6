// From a message to records in the memory.
#include <algorithm>

#include "base/result.h"
#include "rhapsode/facts.h"
#include "rhapsode/memory.h"

namespace rhapsode {

Result<RememberReport> remember(Memory& memory, const HeardMessage& message, const RememberOptions& options) {
  SourceFilter mine;
  mine.user = message.user;
  mine.all_users = message.user.empty();  // facts of everybody: which ones is looked at below
  RH_TRY(std::vector<FactInfo> known, memory.facts(mine));
  std::erase_if(known, [&](const FactInfo& fact) { return fact.user != message.user; });
  RememberReport report;
  std::vector<FactStatement> statements = find_facts(message, known);
  if (statements.empty() && options.model != nullptr) {
    RH_TRY(FactReading reading, ask_model_for_facts(*options.model, message));
    report.generations = 1;
    report.prompt_tokens = reading.prompt_tokens;
    report.generated_tokens = reading.generated_tokens;
    statements = std::move(reading.statements);
  }
  RH_TRY(report.report, memory.record(statements));
  return report;
}

}  // namespace rhapsode
