#include "cli/json_output.h"

#include <cmath>

namespace rhapsode::cli {
namespace {

constexpr auto kReplace = Json::error_handler_t::replace;

double rounded(double milliseconds) {
  return std::round(milliseconds * 1000.0) / 1000.0;
}

// JSON has no infinity: the log-probability of an impossible token is null.
Json logprob_json(float logprob) {
  return std::isfinite(logprob) ? Json(logprob) : Json(nullptr);
}

Json token_json(const GeneratedToken& token, const Engine& engine) {
  Json top = Json::array();
  for (const TokenLogprob& other : token.top) {
    top.push_back({{"token", other.token},
                   {"text", engine.detokenize({other.token})},
                   {"logprob", logprob_json(other.logprob)}});
  }
  return {{"token", token.token},
          {"text", engine.detokenize({token.token})},
          {"logprob", logprob_json(token.logprob)},
          {"top", std::move(top)}};
}

}  // namespace

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, kReplace) + "\n";
}
std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, kReplace) + "\n";
}

Json error_json(const Error& error) {
  return {{"error", {{"kind", to_string(error.kind)}, {"message", error.message}}}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},       {"cached_tokens", usage.cached_tokens},
          {"evaluated_tokens", usage.evaluated_tokens}, {"generated_tokens", usage.generated_tokens},
          {"truncated_tokens", usage.truncated_tokens}, {"rolled_tokens", usage.rolled_tokens},
          {"sparse_tokens", usage.sparse_tokens},       {"cache_miss", usage.cache_miss}};
}

Json timing_json(const StageTimes& timing, const ModelInfo& model) {
  return {{"load_ms", rounded(model.load_ms)},
          {"queue_ms", rounded(timing.queue_ms)},
          {"tokenize_ms", rounded(timing.tokenize_ms)},
          {"prefill_ms", rounded(timing.prefill_ms)},
          {"ttft_ms", rounded(timing.ttft_ms)},
          {"decode_ms", rounded(timing.decode_ms)},
          {"sample_ms", rounded(timing.sample_ms)},
          {"total_ms", rounded(timing.total_ms)},
          {"prefill_tokens_per_s", rounded(timing.prefill_tokens_per_s)},
          {"decode_tokens_per_s", rounded(timing.decode_tokens_per_s)}};
}

Json model_json(const ModelInfo& model) {
  return {{"name", model.name},
          {"architecture", model.architecture},
          {"weights", model.weights},
          {"file_bytes", model.file_bytes},
          {"parameters", model.parameters},
          {"layers", model.layers},
          {"heads", model.heads},
          {"kv_heads", model.kv_heads},
          {"head_dim", model.head_dim},
          {"vocabulary", model.vocabulary},
          {"trained_context_tokens", model.trained_context_tokens},
          {"kv_bytes_per_token", model.kv_bytes_per_token}};
}

Json response_json(const Response& response, bool with_tokens, const Engine& engine) {
  const ModelInfo model = engine.model();
  Json json{{"text", response.text}, {"finish", to_string(response.finish)}};
  if (with_tokens) {
    Json& tokens = json["tokens"] = Json::array();
    for (const GeneratedToken& token : response.tokens) tokens.push_back(token_json(token, engine));
  }
  if (!response.prompt_logprobs.empty()) {
    Json& logprobs = json["prompt_logprobs"] = Json::array();
    for (const float logprob : response.prompt_logprobs) logprobs.push_back(logprob_json(logprob));
  }
  json["usage"] = usage_json(response.usage);
  json["timing"] = timing_json(response.timing, model);
  json["model"] = model_json(model);
  return json;
}

}  // namespace rhapsode::cli
