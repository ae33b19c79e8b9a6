#include "rhapsode/engine.h"

#include <ggml.h>

#include <algorithm>
#include <map>

#include "engine/engine_impl.h"
#include "engine/runner_options.h"

namespace rhapsode {

namespace {

Result<int> context_of(const EngineOptions& options, int trained) {
  if (options.context_tokens < 0) {
    return make_error(ErrorKind::kInvalidArgument, "a context of {} tokens is not possible",
                      options.context_tokens);
  }
  const int tokens = options.context_tokens == 0 ? trained : options.context_tokens;
  if (tokens > trained && !options.beyond_trained_context) {
    return make_error(
        ErrorKind::kTooLarge,
        "a context of {} tokens is beyond the {} that the model was trained on; answers get worse there: "
        "ask for it with --beyond-trained-context",
        tokens, trained);
  }
  return tokens;
}

// The weight type that holds most of the file's bytes.
std::string dominant_type(const model::GgufFile& file) {
  std::map<int, uint64_t> bytes;
  for (const auto& tensor : file.tensors()) bytes[tensor.type] += tensor.data.size();
  const auto most = std::max_element(bytes.begin(), bytes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : ggml_type_name(static_cast<ggml_type>(most->first));
}

constexpr int kLeastDecodeBudget = 256;  // what is read always, and one page of choice

Status check_budget(int tokens) {
  if (tokens == 0 || tokens >= kLeastDecodeBudget) return {};
  return make_error(ErrorKind::kInvalidArgument,
                    "a decode budget has at least {} tokens, or 0 to read everything; {} given",
                    kLeastDecodeBudget, tokens);
}

Status check_options(const EngineOptions& options) {
  const int group = options.sparse_decode.group_tokens;
  if (group != 16 && group != 32 && group != 64) {
    return make_error(ErrorKind::kInvalidArgument, "sparse decode groups 16, 32 or 64 tokens; {} given",
                      group);
  }
  RH_TRY_STATUS(check_budget(options.sparse_decode.budget_tokens));
  if (options.threads < 0 || options.threads > 1024) {
    return make_error(ErrorKind::kInvalidArgument, "threads must lie in 0..1024; {} given", options.threads);
  }
  if (options.devices < 1 || options.devices > 64) {
    return make_error(ErrorKind::kInvalidArgument, "memory is spread over 1..64 devices; {} given",
                      options.devices);
  }
  if (options.batch_tokens < 1 || options.batch_tokens > 65536) {
    return make_error(ErrorKind::kInvalidArgument, "a pass takes 1..65536 tokens; {} given",
                      options.batch_tokens);
  }
  if (options.pass_ms < 1) {
    return make_error(ErrorKind::kInvalidArgument, "a pass lasts at least 1 ms; {} given", options.pass_ms);
  }
  return {};
}

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEnd:
      return "end";
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "end";
}

Result<Response> Generation::wait() {
  if (!state_) return make_error(ErrorKind::kInvalidArgument, "this handle belongs to no request");
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->outcome.has_value(); });
  return *state_->outcome;
}

void Generation::cancel() {
  if (state_) state_->cancelled = true;
}

bool Generation::done() const {
  if (!state_) return true;
  std::lock_guard lock(state_->mutex);
  return state_->outcome.has_value();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  const int64_t begin = now_ns();
  RH_TRY_STATUS(check_options(options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (!options.trace_file.empty()) RH_TRY_STATUS(impl->tracer.open(options.trace_file));

  RH_TRY(engine::RunnerOptions runner_options, engine::runner_options(options));
  runner_options.layer_times = impl->tracer.enabled();
  RH_TRY(impl->runner, engine::ModelRunner::open(runner_options));
  RH_TRY(impl->context_tokens, context_of(options, impl->runner->architecture().trained_context_tokens));
  RH_TRY(impl->prompts, engine::PromptBuilder::make(impl->runner->shared_tokenizer()));
  const size_t bounds_bytes = options.sparse_decode.budget_tokens > 0
                                  ? runner_options.sparse.bounds.block_bytes(impl->runner->kv_shape())
                                  : 0;
  RH_TRY(impl->pool, impl->runner->make_pool(options.kv_cap_bytes, bounds_bytes));
  RH_TRY(impl->ram_pool, impl->runner->make_ram_pool(options.kv_ram_cap_bytes));
  impl->scheduler = std::make_unique<engine::Scheduler>(
      *impl->runner, *impl->pool, impl->tracer,
      engine::SchedulerOptions{options.batch_tokens, options.pass_ms, options.prefix_cache});
  const int64_t end = now_ns();
  impl->load_ms = ms_between(begin, end);
  impl->tracer.span("load", begin, end);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<Generation> Engine::submit(Request request) {
  const int64_t begin = now_ns();
  auto state = std::make_shared<Generation::State>(std::move(request), *impl_->pool);
  state->submitted_ns = begin;
  RH_TRY(engine::Prompt prompt, impl_->prompts->build(state->request, impl_->context_tokens));
  state->response.usage.truncated_tokens = prompt.truncated_tokens;
  return impl_->start(std::move(state), std::move(prompt.tokens));
}

Result<int> Engine::Impl::decode_budget(const Request& request) const {
  const int budget = request.decode_budget_tokens;
  if (budget < 0) return options.sparse_decode.budget_tokens;
  RH_TRY_STATUS(check_budget(budget));
  if (budget > 0 && options.sparse_decode.budget_tokens == 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "this engine was opened without sparse decode, so it keeps no key bounds: open it with "
                      "sparse_decode.budget_tokens to set a budget for a request");
  }
  return budget;
}

Result<Generation> Engine::Impl::start(std::shared_ptr<Generation::State> state,
                                       std::vector<int32_t> prompt) {
  state->id = next_id++;
  state->context_tokens = context_tokens;
  state->prompt = std::move(prompt);
  state->response.usage.prompt_tokens = static_cast<int>(state->prompt.size());
  RH_TRY(state->decode_budget, decode_budget(state->request));
  state->tokens = state->prompt;
  RH_TRY(state->sampler, text::Sampler::make(runner->tokenizer(), state->request.sampling));
  state->sampler->observe(state->prompt);
  RH_TRY(state->decoder, text::StreamDecoder::make(state->request.stop));
  const int64_t end = now_ns();
  state->response.timing.tokenize_ms = ms_between(state->submitted_ns, end);
  tracer.span("tokenize", state->submitted_ns, end, state->id);
  scheduler->submit(state);
  Generation generation;
  generation.state_ = std::move(state);
  return generation;
}

Result<Response> Engine::run(Request request) {
  RH_TRY(Generation generation, submit(std::move(request)));
  return generation.wait();
}

Result<std::vector<int32_t>> Engine::tokenize(const std::string& text, bool add_special) const {
  return impl_->runner->tokenizer().encode(text, {.add_special = add_special, .parse_special = false});
}

std::string Engine::detokenize(const std::vector<int32_t>& tokens) const {
  return impl_->runner->tokenizer().decode(tokens);
}

Result<std::vector<int32_t>> Engine::render(const std::vector<Message>& messages) const {
  return impl_->prompts->render(messages);
}

ModelInfo Engine::model() const {
  const model::Architecture& a = impl_->runner->architecture();
  ModelInfo info;
  info.name = a.title;
  info.architecture = a.name;
  info.weights = dominant_type(impl_->runner->file());
  info.file_bytes = impl_->runner->file().file_bytes();
  info.parameters = a.parameters;
  info.layers = a.layers;
  info.heads = a.heads;
  info.kv_heads = a.kv_heads;
  info.head_dim = a.head_dim;
  info.vocabulary = a.vocabulary;
  info.trained_context_tokens = a.trained_context_tokens;
  info.kv_bytes_per_token = impl_->runner->kv_shape().block_bytes() / kernels::kPageTokens;
  info.load_ms = impl_->load_ms;
  return info;
}

EngineStats Engine::stats() const {
  return impl_->scheduler->stats();
}

}  // namespace rhapsode
