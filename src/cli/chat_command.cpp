// `rhapsode chat`: questions and answers over one memory, each seeing those before it.
#include <unistd.h>

#include <csignal>

#include "cli/add_report.h"
#include "cli/answer_output.h"
#include "cli/asker.h"
#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/line_reader.h"
#include "cli/talker.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr const char* kHelp =
    "/sources   the passages that the last answer was made from\n"
    "/new       forget this conversation and begin another\n"
    "/history   everything said in a conversation that is kept\n"
    "/quit      end; so does Ctrl-D\n"
    "Ctrl-C stops an answer. Anything else is a question.\n";

class Chat {
 public:
  // `talker` may be null: then nothing that is said is kept.
  Chat(Invocation& invocation, MemorySession& session, AskOptions options, Talker* talker)
      : settings_(invocation.settings),
        terminal_(invocation.terminal),
        session_(session),
        options_(std::move(options)),
        talker_(talker),
        asker_(session, terminal_, settings_.json ? Asker::Form::kLine : Asker::Form::kText,
               settings_.memory),
        on_terminal_(isatty(STDIN_FILENO) == 1 && terminal_.traits().err_is_terminal) {}

  Result<int> run() {
    RH_TRY_STATUS(greet());
    bool failed = false;
    std::string line;
    while (true) {
      RH_TRY(const auto outcome, next_line(line));
      if (outcome == LineReader::Outcome::kInterrupted) return 128 + signal_;
      if (outcome == LineReader::Outcome::kEndOfInput) break;
      line = trimmed(line);
      if (line.empty()) continue;
      if (line == "/quit" || line == "/exit") break;
      if (line.starts_with('/')) {
        run_slash(line);
        continue;
      }
      const int signal_number = answer(line, failed);
      // Ctrl-C stops the answer, not the chat, when there is somebody to ask on.
      if (signal_number != 0 && !(signal_number == SIGINT && on_terminal_)) return 128 + signal_number;
      if (terminal_.out_closed()) break;
    }
    return failed && !on_terminal_ ? kExitFailed : kExitOk;
  }

 private:
  Status greet() {
    if (!on_terminal_ || settings_.json) return {};
    RH_TRY(const auto sources, session_.memory->list(options_.filter));
    terminal_.print_err(terminal_.paint_err(
        Style::kDim, fmt::format("{}{} at {} · {} · /help lists what else there is\n",
                                 talker_ ? fmt::format("conversation {} · ", printable(talker_->name())) : "",
                                 counted(sources.size(), "source"), session_.place.folder.string(),
                                 printable(session_.engine->model().name))));
    return {};
  }

  Result<LineReader::Outcome> next_line(std::string& line) {
    RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
    if (on_terminal_) terminal_.print_err(terminal_.paint_err(Style::kBold, "> "));
    RH_TRY(const auto outcome, reader_.next(line, interrupts));
    signal_ = interrupts.signal_number();
    if (on_terminal_ && outcome != LineReader::Outcome::kLine) terminal_.print_err("\n");
    return outcome;
  }

  // Returns the signal that came meanwhile, 0: none.
  int answer(const std::string& question, bool& failed) {
    const auto interrupts = InterruptGuard::install();
    if (!interrupts.ok()) {
      print_error(interrupts.error());
      failed = true;
      return 0;
    }
    const Status answered = talker_ ? say(question, *interrupts) : ask(question, *interrupts);
    const int signal_number = interrupts->signal_number();
    if (answered.ok()) {
      if (!settings_.json) terminal_.print("\n");
    } else if (signal_number == 0) {
      print_error(answered.error());
      failed = true;
    }
    return signal_number;
  }

  Status ask(const std::string& question, const InterruptGuard& interrupts) {
    options_.question = question;
    RH_TRY(Answer answer, asker_.ask(options_, interrupts));
    options_.history.push_back({"user", question});
    options_.history.push_back({"assistant", answer.text});
    last_read_ = std::move(answer.passages);
    return {};
  }

  Status say(const std::string& message, const InterruptGuard& interrupts) {
    RH_TRY_STATUS(talker_->say(message, interrupts));
    last_read_ = talker_->last_read();
    return {};
  }

  void run_slash(const std::string& line) {
    if (line == "/help") return terminal_.print_err(kHelp);
    if (line == "/history") {
      if (!talker_)
        return terminal_.print_err("this conversation is not kept; --conversation NAME keeps one\n");
      const Status printed = talker_->print_history();
      return printed.ok() ? void() : print_error(printed.error());
    }
    if (line == "/new" && talker_) {
      return terminal_.print_err("this conversation is kept; --conversation NAME begins another\n");
    }
    if (line == "/new") {
      options_.history.clear();
      last_read_.clear();
      return terminal_.print_err("a new conversation begins\n");
    }
    if (line == "/sources") {
      if (last_read_.empty()) return terminal_.print_err("nothing was read yet\n");
      return terminal_.print(read_table(last_read_, terminal_));
    }
    terminal_.print_err(fmt::format("there is no {}; /help lists what there is\n", printable(line)));
  }

  void print_error(const Error& error) {
    if (settings_.json) terminal_.print(to_line(error_json(error)));
    const std::string hint = error.kind == ErrorKind::kTooLarge && !options_.history.empty()
                                 ? "; /new begins another conversation"
                                 : "";
    terminal_.print_err(fmt::format("{} {}{}\n", terminal_.paint_err(Style::kRed, "rhapsode:"),
                                    printable(error.message), hint));
  }

  static std::string trimmed(const std::string& line) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of(" \t") - begin + 1);
  }

  const Settings& settings_;
  Terminal& terminal_;
  MemorySession& session_;
  AskOptions options_;
  Talker* const talker_;
  Asker asker_;
  const bool on_terminal_;
  LineReader reader_;
  std::vector<FoundPassage> last_read_;
  int signal_ = 0;
};

}  // namespace

Result<int> run_chat(Invocation& invocation) {
  RH_TRY(AskOptions options, ask_options(invocation.settings));
  const MemorySettings& settings = invocation.settings.memory;
  const bool keeps = !settings.conversation.empty();
  if (!keeps && (!settings.fork_from.empty() || settings.other_conversations || !settings.speaker.empty())) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "--fork-from, --other-conversations and --speaker need a conversation that is kept: name "
        "it with --conversation NAME");
  }
  RH_TRY(MemorySession session, open_session(invocation, keeps ? MemoryUse::kChange : MemoryUse::kLook));
  RH_TRY_STATUS(check_filter(*session.memory, options.filter));
  std::unique_ptr<Talker> talker;
  if (keeps) {
    RH_TRY(talker, Talker::make(invocation, session, options));
  }
  return Chat(invocation, session, std::move(options), talker.get()).run();
}

}  // namespace rhapsode::cli
