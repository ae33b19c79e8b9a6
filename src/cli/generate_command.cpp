// `rhapsode generate`: one prompt, answered as the text comes.
#include <cstdlib>
#include <thread>

#include "cli/command.h"
#include "cli/json_output.h"
#include "cli/prompt.h"
#include "cli/text_pump.h"
#include "cli/text_width.h"
#include "model/pull.h"
#include "rhapsode/engine.h"

namespace rhapsode::cli {
namespace {

class Generator {
 public:
  explicit Generator(Invocation& invocation)
      : settings_(invocation.settings),
        terminal_(invocation.terminal),
        streams_(!settings_.json || settings_.generate.stream) {}

  Result<int> run(Request request) {
    RH_TRY_STATUS(open_engine());
    RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
    RH_TRY(const Response response, stream(std::move(request), interrupts));
    terminal_.clear_status();
    if (settings_.json) {
      print_json(response);
    } else {
      if (last_character_ != '\n' && !response.text.empty()) terminal_.print("\n");
      print_notes(response);
    }
    const int signal_number = interrupts.signal_number();
    return signal_number == 0 ? kExitOk : 128 + signal_number;
  }

 private:
  Status open_engine() {
    EngineOptions options = settings_.engine;
    RH_TRY(options.model, model::resolve_model(settings_.model));
    terminal_.show_status(fmt::format("Loading {} …", printable(settings_.model)));
    RH_TRY(engine_, Engine::open(options));
    return {};
  }

  Result<Response> stream(Request request, const InterruptGuard& interrupts) {
    RH_TRY(const std::unique_ptr<TextPump> pump, TextPump::make());
    if (streams_) {
      request.on_text = [&pump](std::string_view piece) {
        pump->push(piece);
        return true;
      };
    }
    terminal_.show_status("Reading the prompt …");
    RH_TRY(Generation generation, engine_->submit(std::move(request)));
    Result<Response> response = Error{ErrorKind::kInternal, "the request did not end"};
    std::thread waiter([&] {
      response = generation.wait();
      pump->finish();
    });
    const bool ended = pump->run(
        terminal_, interrupts, [this](const std::string& text) { return formatted(text); },
        [&generation] { generation.cancel(); });
    if (!ended && !settings_.json) leave_now(interrupts);
    waiter.join();
    return response;
  }

  // Ends the process while the engine is still in the middle of a pass, which may take seconds: the text is
  // out, and whoever pressed Ctrl-C is not kept waiting for the rest. (JSON waits: its object needs the
  // pass's end.)
  [[noreturn]] void leave_now(const InterruptGuard& interrupts) {
    if (last_character_ != '\n' && last_character_ != '\0') terminal_.print("\n");
    terminal_.clear_status();
    std::_Exit(128 + interrupts.signal_number());
  }

  std::string formatted(const std::string& text) {
    if (settings_.json) return to_line({{"event", "text"}, {"text", text}});
    last_character_ = text.back();
    return terminal_.shown(text);
  }

  void print_json(const Response& response) {
    Json json = response_json(response, settings_.request.top_logprobs >= 0, *engine_);
    if (!streams_) return terminal_.print(to_text(json));
    Json event{{"event", "result"}};
    event.update(json);
    terminal_.print(to_line(event));
  }

  // What a person should know that the text does not show: always when something was cut, the numbers on a
  // terminal.
  void print_notes(const Response& response) {
    const Usage& usage = response.usage;
    if (usage.truncated_tokens > 0) {
      note(Style::kYellow,
           fmt::format("the prompt was too long: its {} oldest tokens were dropped", usage.truncated_tokens));
    }
    if (usage.rolled_tokens > 0) {
      note(Style::kYellow,
           fmt::format("the context was full: {} of its oldest tokens were dropped on the way",
                       usage.rolled_tokens));
    }
    if (usage.sparse_tokens > 0) {
      note(Style::kYellow,
           fmt::format("{} of {} tokens are approximate: each read at most --decode-budget {} of its context",
                       usage.sparse_tokens, usage.generated_tokens,
                       settings_.engine.sparse_decode.budget_tokens));
    }
    if (response.finish == FinishReason::kContext) {
      note(Style::kYellow,
           "the context is full; a larger --context leaves more room, --roll-context goes on without "
           "the oldest text");
    }
    if (!terminal_.shows_status()) return;
    if (response.finish == FinishReason::kLength && settings_.request.max_tokens > 0) {
      note(Style::kDim, fmt::format("ended at --max-tokens {}", settings_.request.max_tokens));
    }
    if (response.finish == FinishReason::kCancelled) note(Style::kDim, "stopped");
    const std::string cached =
        usage.cached_tokens > 0 ? fmt::format(" ({} cached)", usage.cached_tokens) : "";
    note(Style::kDim,
         fmt::format("{} prompt tokens{} at {:.0f}/s · first token after {:.2f} s · {} tokens at {:.1f}/s",
                     usage.prompt_tokens, cached, response.timing.prefill_tokens_per_s,
                     (engine_->model().load_ms + response.timing.ttft_ms) / 1000.0, usage.generated_tokens,
                     response.timing.decode_tokens_per_s));
  }

  void note(Style style, const std::string& text) {
    terminal_.print_err(terminal_.paint_err(style, text) + "\n");
  }

  const Settings& settings_;
  Terminal& terminal_;
  const bool streams_;
  std::unique_ptr<Engine> engine_;
  char last_character_ = '\0';
};

}  // namespace

Result<int> run_generate(Invocation& invocation) {
  RH_TRY(Request request, build_request(invocation));
  return Generator(invocation).run(std::move(request));
}

}  // namespace rhapsode::cli
