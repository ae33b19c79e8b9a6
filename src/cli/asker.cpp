#include "cli/asker.h"

#include "cli/answer_output.h"
#include "cli/heat_map.h"
#include "cli/memory_json.h"
#include "cli/prompt.h"
#include "cli/text_width.h"
#include "cli/trace_json.h"

namespace rhapsode::cli {
namespace {

constexpr const char* kNothingFit = "The memory holds nothing that answers this.";

}  // namespace

Result<AskOptions> ask_options(const Settings& settings) {
  AskOptions options = settings.memory.ask;
  options.filter = settings.memory.filter;
  options.passages.assign(settings.memory.read.begin(), settings.memory.read.end());
  options.trace = settings.memory.heat_map || !settings.memory.answer_trace.empty();
  options.max_tokens = settings.request.max_tokens;
  options.sampling = settings.request.sampling;
  RH_TRY_STATUS(read_constraints(options.sampling));
  return options;
}

Result<Answer> Asker::ask(const AskOptions& options, const InterruptGuard& interrupts) {
  Result<Answer> answer = ask_streaming(options, interrupts);
  terminal_.clear_status();
  if (!answer.ok()) {
    stream_.end_line();
    return answer;
  }
  const Json trace = trace_json(options.question, *answer, session_.engine->model());
  if (stream_.form() == Form::kText) {
    print_text(*answer, options);
  } else {
    print_json(*answer, trace);
  }
  if (!settings_.answer_trace.empty()) RH_TRY_STATUS(write_trace(settings_.answer_trace, trace));
  return answer;
}

void Asker::print_json(const Answer& answer, const Json& trace) {
  Json json = answer_json(answer, session_.engine->model());
  json["trace"] = trace;
  if (stream_.form() == Form::kEvents) {
    Json event{{"event", "result"}};
    event.update(json);
    json = std::move(event);
  }
  terminal_.print(stream_.form() == Form::kObject ? to_text(json) : to_line(json));
}

Result<Answer> Asker::ask_streaming(AskOptions options, const InterruptGuard& interrupts) {
  Result<Answer> answer = Error{ErrorKind::kInternal, "the question did not end"};
  const auto work = [&](const AnswerStream::OnText& on_text) {
    options.on_text = on_text;
    answer = session_.memory->ask(options);
  };
  RH_TRY_STATUS(stream_.run("Reading the memory …", work, interrupts));
  return answer;
}

void Asker::print_text(const Answer& answer, const AskOptions& options) {
  // An abstention may come without a piece of text.
  if (!stream_.printed() && answer.finish != FinishReason::kCancelled) {
    const std::string text = answer.text.empty() && answer.abstained ? kNothingFit : answer.text;
    if (!text.empty()) stream_.print_text(text);
  }
  stream_.end_line();
  if (!answer.citations.empty()) terminal_.print("\n" + footnotes(answer.citations, terminal_));
  if (settings_.verbose) {
    for (size_t i = 0; i < answer.hops.size(); ++i) {
      terminal_.print("\n" + hop_text(static_cast<int>(i) + 1, answer.hops[i], terminal_));
    }
  }
  if (settings_.verbose && !answer.passages.empty()) {
    terminal_.print("\n" + read_table(answer.passages, terminal_));
  }
  if (settings_.heat_map && answer.trace) terminal_.print("\n" + heat_map(*answer.trace, terminal_));
  print_notes(answer, options);
}

void Asker::print_notes(const Answer& answer, const AskOptions& options) {
  if (answer.finish == FinishReason::kContext) {
    stream_.note(Style::kYellow, "the context is full; a larger --context leaves more room");
  }
  if (!terminal_.shows_status() && !settings_.verbose) return;
  for (const std::string& text : answer.notes) stream_.note(Style::kYellow, printable(text));
  if (answer.abstained && options.abstain) {
    stream_.note(Style::kYellow, "nothing fit was found; --no-abstain answers all the same");
  }
  if (answer.finish == FinishReason::kLength && options.max_tokens > 0) {
    stream_.note(Style::kDim, fmt::format("ended at --max-tokens {}", options.max_tokens));
  }
  if (answer.finish == FinishReason::kCancelled) stream_.note(Style::kDim, "stopped");
  stream_.note(Style::kDim, answer_numbers(answer, session_.engine->model().load_ms));
}

}  // namespace rhapsode::cli
