// Shows an answer while it is made: its text as it comes, or nothing until the JSON is whole. Shared by what
// asks a memory (asker.h) and what talks in a conversation (talker.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace rhapsode::cli {

class AnswerStream {
 public:
  enum class Form : uint8_t {
    kText,
    kObject,  // one indented JSON object
    kLine,    // one line of JSON
    kEvents,  // lines of JSON as the text comes, the object last
  };
  using OnText = std::function<bool(std::string_view)>;

  AnswerStream(Terminal& terminal, Form form) : terminal_(terminal), form_(form) {}

  // What is done when a signal has come and the engine is still in the middle of a pass after half a second;
  // unset: that pass is waited for.
  void on_late(std::function<void(int signal_number)> leave) { leave_ = std::move(leave); }

  // Runs `work` on a thread of its own and prints the text that it hands over until it returns. The text is
  // refused once a signal has come.
  Status run(const std::string& status, const std::function<void(const OnText&)>& work,
             const InterruptGuard& interrupts);

  void print_text(const std::string& text) { terminal_.print(formatted(text)); }
  void end_line();
  void note(Style style, const std::string& text);
  bool printed() const { return last_character_ != '\0'; }
  Form form() const { return form_; }
  Terminal& terminal() const { return terminal_; }

 private:
  std::string formatted(const std::string& text);

  Terminal& terminal_;
  const Form form_;
  std::function<void(int)> leave_;
  char last_character_ = '\0';  // printed of the answer so far; '\0': none
};

}  // namespace rhapsode::cli
