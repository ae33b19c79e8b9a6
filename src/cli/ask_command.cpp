// `rhapsode ask`: one question to a memory, answered as the text comes, with citations.
#include <cstdlib>

#include "cli/asker.h"
#include "cli/command.h"
#include "cli/prompt.h"
#include "cli/trace_json.h"

namespace rhapsode::cli {

Result<int> run_ask(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  RH_TRY(AskOptions options, ask_options(settings));
  options.question = invocation.arguments.front();
  if (options.question == "-") {
    RH_TRY(options.question, read_standard_input("the question on standard input"));
  }
  if (options.question.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "the question is empty; give some text");
  }
  RH_TRY_STATUS(check_trace_file(settings.memory.answer_trace));
  RH_TRY(MemorySession session, open_session(invocation, MemoryUse::kLook));
  RH_TRY_STATUS(check_filter(*session.memory, options.filter));

  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  const Asker::Form form = !settings.json             ? Asker::Form::kText
                           : settings.generate.stream ? Asker::Form::kEvents
                                                      : Asker::Form::kObject;
  Asker asker(session, invocation.terminal, form, settings.memory);
  // The text is out, and whoever pressed Ctrl-C is not kept waiting for the rest of a pass. (JSON waits: its
  // object needs the pass's end.)
  if (!settings.json) asker.on_late([](int signal_number) { std::_Exit(128 + signal_number); });
  const auto answer = asker.ask(options, interrupts);
  if (interrupts.signal_number() != 0) return 128 + interrupts.signal_number();
  if (!answer.ok()) return answer.error();
  return kExitOk;
}

}  // namespace rhapsode::cli
