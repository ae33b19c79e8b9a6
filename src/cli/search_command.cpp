// `rhapsode search`: the passages a question finds, with each signal's score.
#include "cli/answer_output.h"
#include "cli/command.h"
#include "cli/memory_json.h"
#include "cli/memory_session.h"
#include "cli/prompt.h"

namespace rhapsode::cli {
namespace {

Json hit_json(const FoundPassage& found) {
  Json json = found_json(found);
  json["latent_z"] = found.latent_z;
  json["keywords_z"] = found.keywords_z;
  return json;
}

}  // namespace

Result<int> run_search(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  Terminal& terminal = invocation.terminal;
  SearchOptions options = settings.memory.search;
  options.judge = settings.memory.ask.judge;
  options.chain = settings.memory.ask.chain;
  options.links = settings.memory.ask.links;
  options.rank = settings.memory.ask.rank;
  options.heed_times = settings.memory.ask.heed_times;
  if (settings.limit > 0) options.limit = settings.limit;
  options.filter = settings.memory.filter;
  if (!options.latent && !options.keywords) {
    return make_error(ErrorKind::kInvalidArgument,
                      "--no-latent and --no-keywords leave nothing to search by; drop one of them");
  }
  std::string question = invocation.arguments.front();
  if (question == "-") {
    RH_TRY(question, read_standard_input("the question on standard input"));
  }
  if (question.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "the question is empty; give some text");
  }
  RH_TRY(const MemorySession session, open_session(invocation, MemoryUse::kLook));
  RH_TRY_STATUS(check_filter(*session.memory, options.filter));

  terminal.show_status("Searching …");
  RH_TRY(const auto found, session.memory->search(question, options));
  terminal.clear_status();
  if (settings.json) {
    Json passages = Json::array();
    for (const FoundPassage& hit : found) passages.push_back(hit_json(hit));
    terminal.print(to_text({{"question", question}, {"passages", std::move(passages)}}));
    return kExitOk;
  }
  if (found.empty()) terminal.print("nothing found\n");
  for (size_t i = 0; i < found.size(); ++i) {
    terminal.print((i > 0 ? "\n" : "") + found_text(static_cast<int>(i) + 1, found[i], question,
                                                    settings.memory.verbose, terminal));
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
