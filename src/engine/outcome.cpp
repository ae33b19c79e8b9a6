// What becomes of a request's logits: the next token, its text, and the response.
#include <cmath>
#include <exception>

#include "engine/scheduler.h"
#include "text/logits.h"

namespace rhapsode::engine {

namespace {

text::Candidates candidates_of(const kernels::TopLogits& top) {
  const bool all = top.possible == static_cast<int32_t>(top.tokens.size());
  return {top.tokens, top.logits, top.exp_sum, all, top.broken};
}

// Those of the chosen token and of the likeliest, from the candidates it was chosen from.
void add_log_probs(const text::Candidates& from, int count, GeneratedToken& generated) {
  const double norm = static_cast<double>(from.logits.front()) + std::log(from.exp_sum);
  for (size_t i = 0; i < from.tokens.size(); ++i) {
    const auto logprob = static_cast<float>(static_cast<double>(from.logits[i]) - norm);
    if (from.tokens[i] == generated.token) generated.logprob = logprob;
    if (i < static_cast<size_t>(count)) generated.top.push_back({from.tokens[i], logprob});
  }
}

Status add_log_probs(std::span<const float> row, int count, GeneratedToken& generated) {
  RH_TRY(const double logprob, text::log_softmax_of(row, generated.token));
  generated.logprob = static_cast<float>(logprob);
  RH_TRY(const auto top, text::top_log_probs(row, count));
  for (const auto& entry : top) generated.top.push_back({entry.token, static_cast<float>(entry.log_prob)});
  return {};
}

}  // namespace

// Somebody else who reads the row needs all of it; a sampler says itself what it takes.
bool Scheduler::draws_from_candidates(const RequestState& request) const {
  return runner_.backend().finds_top_logits() && !request.pause_at && !request.request.logits &&
         request.request.top_logprobs <= kernels::kTopLogits && request.sampler &&
         request.sampler->takes_candidates(kernels::kTopLogits);
}

Result<std::span<const float>> Scheduler::whole_rows(const Outputs& outputs, int first, int count) {
  if (outputs.top) return runner_.backend().whole_rows(first, count);
  const auto width = static_cast<size_t>(runner_.architecture().vocabulary);
  return outputs.rows.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(count) * width);
}

Result<OutputRow> Scheduler::output_row(const RequestState& request, const Outputs& outputs, int index) {
  OutputRow row;
  row.index = index;
  if (outputs.top && draws_from_candidates(request)) {
    RH_TRY(const kernels::TopLogits top, runner_.backend().top_logits(index));
    row.candidates = candidates_of(top);
  } else {
    RH_TRY(row.whole, whole_rows(outputs, index, 1));
  }
  return row;
}

Status Scheduler::sample_next(RequestState& request, OutputRow& row) {
  std::optional<int32_t> token;
  if (row.candidates) {
    RH_TRY(token, request.sampler->sample(*row.candidates));
    if (!token) {
      RH_TRY(row.whole, runner_.backend().whole_rows(row.index, 1));
    }
  }
  if (!token) {
    RH_TRY(token, request.sampler->sample(row.whole));
  }
  GeneratedToken generated;
  generated.token = *token;
  if (const int count = request.request.top_logprobs; count >= 0) {
    // Of the tokens there are: rows may be padded.
    const auto vocabulary = static_cast<size_t>(runner_.tokenizer().size());
    if (row.decided_by_candidates()) {
      add_log_probs(*row.candidates, count, generated);
    } else {
      RH_TRY_STATUS(add_log_probs(row.whole.first(vocabulary), count, generated));
    }
  }
  if (request.request.logits) generated.logits.assign(row.whole.begin(), row.whole.end());
  RH_TRY_STATUS(request.sampler->accept(*token));
  if (request.first_token_ns == 0) request.first_token_ns = now_ns();
  request.tokens.push_back(*token);
  request.response.tokens.push_back(std::move(generated));
  return {};
}

void Scheduler::note_draw(const RequestState& request, const OutputRow& row, int64_t begin_ns) {
  const bool refetched = row.candidates && !row.decided_by_candidates();
  if (row.candidates) {
    std::lock_guard lock(mutex_);
    ++(refetched ? stats_.refetched_tokens : stats_.candidate_tokens);
  }
  if (!tracer_.enabled()) return;
  tracer_.span("sample", begin_ns, now_ns(), request.id,
               {{"candidates", row.candidates ? 1 : 0}, {"refetched", refetched ? 1 : 0}});
}

// What the response tells of the prompt's rows.
Status Scheduler::keep_prompt_rows(RequestState& request, const Slice& slice, const Outputs& outputs) {
  if (request.prefilled || slice.outputs == 0) return {};
  if (!request.request.prompt_logprobs && request.scored_tokens == 0) return {};
  RH_TRY(const std::span<const float> rows, whole_rows(outputs, slice.first_output, slice.outputs));
  if (request.request.prompt_logprobs) RH_TRY_STATUS(keep_prompt_logprobs(request, slice, rows));
  const size_t width = rows.size() / static_cast<size_t>(slice.outputs);
  for (size_t begin = 0; request.scored_tokens > 0 && begin < rows.size(); begin += width) {
    const auto row = rows.subspan(begin, width);
    request.prompt_logits.emplace_back(row.begin(), row.end());
  }
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
