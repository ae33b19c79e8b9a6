// An Engine for tests of the program: answers a prompt with its own words, over and over, at a chosen pace.
//
// Linked in place of src/engine, so that streaming, cancellation, exit codes and JSON are tested without a
// model and in milliseconds. RHAPSODE_FAKE_DELAY_MS is the time a token takes (default 0).
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/result.h"
#include "rhapsode/engine.h"

namespace rhapsode {
namespace {

std::chrono::milliseconds token_delay() {
  const char* text = std::getenv("RHAPSODE_FAKE_DELAY_MS");
  return std::chrono::milliseconds(text ? std::atoi(text) : 0);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin + 1), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

}  // namespace

struct Generation::State {
  Request request;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> done{false};
  Response response;
  std::thread worker;

  ~State() {
    if (worker.joinable()) worker.join();
  }

  void work() {
    const std::string& prompt = request.messages.empty() ? request.text : request.messages.back().content;
    const std::vector<std::string> words = words_of(prompt);
    response.usage.prompt_tokens = response.usage.evaluated_tokens = static_cast<int>(words.size());
    response.finish = FinishReason::kLength;
    for (int i = 0; i < request.max_tokens; ++i) {
      std::this_thread::sleep_for(token_delay());
      if (cancelled) {
        response.finish = FinishReason::kCancelled;
        break;
      }
      const std::string& word = words[static_cast<size_t>(i) % words.size()];
      response.text += word;
      if (request.top_logprobs >= 0) response.tokens.push_back({i, -0.5f, {{i, -0.5f}, {i + 1, -1.5f}}, {}});
      ++response.usage.generated_tokens;
      if (request.on_text && !request.on_text(word)) cancelled = true;
    }
    done = true;
  }
};

struct Engine::Impl {
  EngineOptions options;
};

const char* to_string(FinishReason reason) {
  constexpr const char* kNames[] = {"end", "stop", "length", "context", "cancelled"};
  return kNames[static_cast<int>(reason)];
}

Result<Response> Generation::wait() {
  if (state_->worker.joinable()) state_->worker.join();
  return state_->response;
}
void Generation::cancel() {
  state_->cancelled = true;
}
bool Generation::done() const {
  return state_->done;
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<Generation> Engine::submit(Request request) {
  if (request.max_tokens > 1000000)
    return make_error(ErrorKind::kTooLarge, "more tokens than the context holds");
  Generation generation;
  generation.state_ = std::make_shared<Generation::State>();
  generation.state_->request = std::move(request);
  generation.state_->worker = std::thread([state = generation.state_.get()] { state->work(); });
  return generation;
}

Result<Response> Engine::run(Request request) {
  RH_TRY(Generation generation, submit(std::move(request)));
  return generation.wait();
}

Result<std::vector<int32_t>> Engine::tokenize(const std::string& text, bool) const {
  return std::vector<int32_t>(text.begin(), text.end());
}
std::string Engine::detokenize(const std::vector<int32_t>& tokens) const {
  return std::string(tokens.begin(), tokens.end());
}
Result<std::vector<int32_t>> Engine::render(const std::vector<Message>& messages) const {
  return tokenize(messages.empty() ? "" : messages.back().content, false);
}
ModelInfo Engine::model() const {
  ModelInfo info;
  info.name = impl_->options.model.stem().string();
  info.architecture = "fake";
  return info;
}
EngineStats Engine::stats() const {
  return {};
}

}  // namespace rhapsode
