// Questions that only "yes" lets through, asked on the terminal.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace rhapsode::cli {

class Confirmation {
 public:
  // `yes`: --yes was given, so that every question is answered without being asked.
  Confirmation(Terminal& terminal, const InterruptGuard& interrupts, bool yes)
      : terminal_(terminal), interrupts_(interrupts), yes_(yes) {}

  // "Remove 3 sources?" is true for y or yes; false for anything else, the end of input and Ctrl-C. Without
  // a terminal to ask on and to answer at, kInvalidArgument with `refusal`, which names --yes.
  Result<bool> ask(const std::string& question, const std::string& refusal);

  // Whether a question would be put to a person.
  bool asks() const;

 private:
  Terminal& terminal_;
  const InterruptGuard& interrupts_;
  bool yes_;
};

// "  a\n  b\n  and 7 more\n"
std::string indented_list(const std::vector<std::string>& names, size_t most);

}  // namespace rhapsode::cli
