#include "cli/asker.h"

#include <atomic>
#include <thread>

#include "cli/answer_output.h"
#include "cli/memory_json.h"
#include "cli/prompt.h"
#include "cli/text_pump.h"

namespace rhapsode::cli {
namespace {

constexpr const char* kNothingFit = "The memory holds nothing that answers this.";

}  // namespace

Result<AskOptions> ask_options(const Settings& settings) {
  AskOptions options = settings.memory.ask;
  options.filter = settings.memory.filter;
  options.passages.assign(settings.memory.read.begin(), settings.memory.read.end());
  options.max_tokens = settings.request.max_tokens;
  options.sampling = settings.request.sampling;
  RH_TRY_STATUS(read_constraints(options.sampling));
  return options;
}

Result<Answer> Asker::ask(const AskOptions& options, const InterruptGuard& interrupts) {
  last_character_ = '\0';
  Result<Answer> answer = stream(options, interrupts);
  terminal_.clear_status();
  if (!answer.ok()) {
    end_line();
    return answer;
  }
  if (form_ == Form::kText) {
    print_text(*answer, options);
    return answer;
  }
  Json json = answer_json(*answer, session_.engine->model());
  if (form_ == Form::kEvents) {
    Json event{{"event", "result"}};
    event.update(json);
    json = std::move(event);
  }
  terminal_.print(form_ == Form::kObject ? to_text(json) : to_line(json));
  return answer;
}

Result<Answer> Asker::stream(AskOptions options, const InterruptGuard& interrupts) {
  RH_TRY(const std::unique_ptr<TextPump> pump, TextPump::make());
  std::atomic<bool> cancelled{false};
  const bool streams = form_ == Form::kText || form_ == Form::kEvents;
  options.on_text = [&](std::string_view piece) {
    if (streams) pump->push(piece);
    return !cancelled.load();
  };
  terminal_.show_status("Reading the memory …");
  Result<Answer> answer = Error{ErrorKind::kInternal, "the question did not end"};
  std::thread waiter([&] {
    answer = session_.memory->ask(options);
    pump->finish();
  });
  const bool ended = pump->run(
      terminal_, interrupts, [this](const std::string& text) { return formatted(text); },
      [&cancelled] { cancelled = true; });
  if (!ended && leave_) {
    end_line();
    terminal_.clear_status();
    leave_(interrupts.signal_number());
  }
  waiter.join();
  return answer;
}

std::string Asker::formatted(const std::string& text) {
  if (form_ == Form::kEvents) return to_line({{"event", "text"}, {"text", text}});
  last_character_ = text.back();
  return terminal_.shown(text);
}

void Asker::end_line() {
  if (last_character_ != '\n' && last_character_ != '\0') terminal_.print("\n");
  last_character_ = '\0';
}

void Asker::print_text(const Answer& answer, const AskOptions& options) {
  // An abstention may come without a piece of text.
  if (last_character_ == '\0' && answer.finish != FinishReason::kCancelled) {
    const std::string text = answer.text.empty() && answer.abstained ? kNothingFit : answer.text;
    if (!text.empty()) terminal_.print(formatted(text));
  }
  end_line();
  if (!answer.citations.empty()) terminal_.print("\n" + footnotes(answer.citations, terminal_));
  if (verbose_) {
    for (size_t i = 0; i < answer.hops.size(); ++i) {
      terminal_.print("\n" + hop_text(static_cast<int>(i) + 1, answer.hops[i], terminal_));
    }
  }
  if (verbose_ && !answer.passages.empty()) {
    terminal_.print("\n" + read_table(answer.passages, terminal_));
  }
  print_notes(answer, options);
}

void Asker::print_notes(const Answer& answer, const AskOptions& options) {
  if (answer.finish == FinishReason::kContext) {
    note(Style::kYellow, "the context is full; a larger --context leaves more room");
  }
  if (!terminal_.shows_status() && !verbose_) return;
  if (answer.abstained && options.abstain) {
    note(Style::kYellow, "nothing fit was found; --no-abstain answers all the same");
  }
  if (answer.finish == FinishReason::kLength && options.max_tokens > 0) {
    note(Style::kDim, fmt::format("ended at --max-tokens {}", options.max_tokens));
  }
  if (answer.finish == FinishReason::kCancelled) note(Style::kDim, "stopped");
  note(Style::kDim, answer_numbers(answer, session_.engine->model().load_ms));
}

void Asker::note(Style style, const std::string& text) {
  terminal_.print_err(terminal_.paint_err(style, text) + "\n");
}

}  // namespace rhapsode::cli
