#include "cli/answer_stream.h"

#include <atomic>
#include <thread>

#include "cli/json_output.h"
#include "cli/text_pump.h"

namespace rhapsode::cli {

Status AnswerStream::run(const std::string& status, const std::function<void(const OnText&)>& work,
                         const InterruptGuard& interrupts) {
  last_character_ = '\0';
  RH_TRY(const std::unique_ptr<TextPump> pump, TextPump::make());
  std::atomic<bool> cancelled{false};
  const bool streams = form_ == Form::kText || form_ == Form::kEvents;
  const OnText on_text = [&](std::string_view piece) {
    if (streams) pump->push(piece);
    return !cancelled.load();
  };
  terminal_.show_status(status);
  std::thread worker([&] {
    work(on_text);
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
  worker.join();
  return {};
}

std::string AnswerStream::formatted(const std::string& text) {
  if (form_ == Form::kEvents) return to_line({{"event", "text"}, {"text", text}});
  last_character_ = text.back();
  return terminal_.shown(text);
}

void AnswerStream::end_line() {
  if (last_character_ != '\n' && last_character_ != '\0') terminal_.print("\n");
  last_character_ = '\0';
}

void AnswerStream::note(Style style, const std::string& text) {
  terminal_.print_err(terminal_.paint_err(style, text) + "\n");
}

}  // namespace rhapsode::cli
