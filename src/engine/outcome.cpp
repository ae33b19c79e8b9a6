// What becomes of a request's logits: the next token, its text, and the response.
#include <exception>

#include "engine/scheduler.h"
#include "text/logits.h"

namespace rhapsode::engine {

Status Scheduler::sample_next(RequestState& request, std::span<const float> row) {
  RH_TRY(const int32_t token, request.sampler->sample(row));
  GeneratedToken generated;
  generated.token = token;
  if (request.request.top_logprobs >= 0) {
    RH_TRY(const double logprob, text::log_softmax_of(row, token));
    generated.logprob = static_cast<float>(logprob);
    RH_TRY(const auto top, text::top_log_probs(row, request.request.top_logprobs));
    for (const auto& entry : top) generated.top.push_back({entry.token, static_cast<float>(entry.log_prob)});
  }
  if (request.request.logits) generated.logits.assign(row.begin(), row.end());
  RH_TRY_STATUS(request.sampler->accept(token));
  if (request.first_token_ns == 0) request.first_token_ns = now_ns();
  request.tokens.push_back(token);
  request.response.tokens.push_back(std::move(generated));
  return {};
}

Status Scheduler::keep_prompt_logprobs(RequestState& request, const Slice& slice,
                                       std::span<const float> logits) {
  const size_t vocabulary = runner_.architecture().vocabulary;
  const int first = request.sequence.tokens() - slice.rows;
  for (int row = 0; row < slice.rows; ++row) {
    const size_t next = first + row + 1;
    if (next >= request.prompt.size()) break;
    RH_TRY(const double logprob,
           text::log_softmax_of(logits.subspan(row * vocabulary, vocabulary), request.prompt[next]));
    request.response.prompt_logprobs.push_back(static_cast<float>(logprob));
  }
  return {};
}

bool Scheduler::emit(RequestState& request, std::string_view text) {
  if (text.empty()) return true;
  request.response.text += text;
  if (!request.request.on_text) return true;
  try {
    return request.request.on_text(text);
  } catch (const std::exception&) {
    // The caller's own exception cannot cross into the worker; it ends that caller's request only.
    return false;
  }
}

void Scheduler::retire(const Handle& request) {
  std::erase(running_, request);
  if (!request->keep_sequence) request->sequence.truncate(0);
  pins_changed_ = true;
}

void Scheduler::finish(const Handle& handle, FinishReason reason) {
  RequestState& request = *handle;
  if (reason != FinishReason::kCancelled && reason != FinishReason::kStopString) {
    emit(request, request.decoder.finish());
  }
  cache_sequence(request, true);
  // A request that was never admitted has not even adopted its runs.
  if (request.keep_pages && request.sequence.tokens() >= request.run_tokens()) {
    request.kept_pages = request.sequence.share_pages(request.run_pages());
    request.kept_tokens = request.sequence.tokens() - request.run_tokens();
  }
  retire(handle);
  const int64_t end = now_ns();
  Response& response = request.response;
  response.finish = reason;
  response.usage.generated_tokens = static_cast<int>(response.tokens.size());
  StageTimes& timing = response.timing;
  timing.total_ms = ms_between(request.submitted_ns, end);
  if (request.first_token_ns) timing.ttft_ms = ms_between(request.submitted_ns, request.first_token_ns);
  if (timing.prefill_ms > 0) {
    timing.prefill_tokens_per_s = 1e3 * response.usage.evaluated_tokens / timing.prefill_ms;
  }
  if (response.tokens.size() > 1 && end > request.first_token_ns) {
    timing.decode_tokens_per_s =
        1e3 * static_cast<double>(response.tokens.size() - 1) / ms_between(request.first_token_ns, end);
  }
  tracer_.span("request", request.submitted_ns, end, request.id);
  request.complete(std::move(response));
}

void Scheduler::fail(const Handle& handle, Error error) {
  retire(handle);
  handle->complete(std::move(error));
}

}  // namespace rhapsode::engine
