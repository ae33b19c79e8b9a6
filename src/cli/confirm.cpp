#include "cli/confirm.h"

#include <unistd.h>

#include "cli/line_reader.h"
#include "cli/text_width.h"

namespace rhapsode::cli {

bool Confirmation::asks() const {
  return !yes_ && terminal_.traits().err_is_terminal && isatty(STDIN_FILENO) == 1;
}

Result<bool> Confirmation::ask(const std::string& question, const std::string& refusal) {
  if (yes_) return true;
  if (!asks()) return Error{ErrorKind::kInvalidArgument, refusal};
  terminal_.print_err(fmt::format("{} [y/N] ", terminal_.paint_err(Style::kBold, question)));
  LineReader reader;
  std::string answer;
  RH_TRY(const auto outcome, reader.next(answer, interrupts_));
  if (outcome != LineReader::Outcome::kLine) {
    terminal_.print_err("\n");
    return false;
  }
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes" || answer == "YES";
}

std::string indented_list(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == most) {
      text += fmt::format("  and {} more\n", names.size() - most);
      break;
    }
    text += fmt::format("  {}\n", printable(names[i]));
  }
  return text;
}

}  // namespace rhapsode::cli
