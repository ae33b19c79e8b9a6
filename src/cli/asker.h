// Asks a memory and shows the answer as it comes: text and footnotes, or JSON. Shared by `ask` and `chat`.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/memory_session.h"

namespace rhapsode::cli {

// What the options say, without a question. Grammars and schemas given as files are read.
Result<AskOptions> ask_options(const Settings& settings);

class Asker {
 public:
  enum class Form : uint8_t {
    kText,
    kObject,  // one indented JSON object
    kLine,    // one line of JSON
    kEvents,  // lines of JSON as the text comes, the object last
  };

  Asker(MemorySession& session, Terminal& terminal, Form form, bool verbose)
      : session_(session), terminal_(terminal), form_(form), verbose_(verbose) {}

  // What is done when a signal has come and the engine is still in the middle of a pass after half a second;
  // unset: that pass is waited for.
  void on_late(std::function<void(int signal_number)> leave) { leave_ = std::move(leave); }

  // Prints everything there is to tell, errors apart. A cancelled answer is one with what came so far.
  Result<Answer> ask(const AskOptions& options, const InterruptGuard& interrupts);

 private:
  Result<Answer> stream(AskOptions options, const InterruptGuard& interrupts);
  std::string formatted(const std::string& text);
  void print_text(const Answer& answer, const AskOptions& options);
  void print_notes(const Answer& answer, const AskOptions& options);
  void end_line();
  void note(Style style, const std::string& text);

  MemorySession& session_;
  Terminal& terminal_;
  const Form form_;
  const bool verbose_;
  std::function<void(int)> leave_;
  char last_character_ = '\0';  // printed of the answer so far; '\0': none
};

}  // namespace rhapsode::cli
