// Asks a memory and shows the answer as it comes: text and footnotes, or JSON. Shared by `ask` and `chat`.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/answer_stream.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/memory_session.h"

namespace rhapsode::cli {

// What the options say, without a question. Grammars and schemas given as files are read.
Result<AskOptions> ask_options(const Settings& settings);

class Asker {
 public:
  using Form = AnswerStream::Form;

  Asker(MemorySession& session, Terminal& terminal, Form form, const MemorySettings& settings)
      : session_(session), terminal_(terminal), stream_(terminal, form), settings_(settings) {}

  void on_late(std::function<void(int signal_number)> leave) { stream_.on_late(std::move(leave)); }

  // Prints everything there is to tell, errors apart. A cancelled answer is one with what came so far.
  // The error may be that the trace's file could not be written; everything else has been told by then.
  Result<Answer> ask(const AskOptions& options, const InterruptGuard& interrupts);

 private:
  Result<Answer> ask_streaming(AskOptions options, const InterruptGuard& interrupts);
  void print_json(const Answer& answer, const Json& trace);
  void print_text(const Answer& answer, const AskOptions& options);
  void print_notes(const Answer& answer, const AskOptions& options);

  MemorySession& session_;
  Terminal& terminal_;
  AnswerStream stream_;
  const MemorySettings& settings_;
};

}  // namespace rhapsode::cli
