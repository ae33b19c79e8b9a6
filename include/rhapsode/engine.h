// The engine: one model, one KV pool, any number of requests batched together.
//
// Engine::open() loads the model and starts one worker thread, which runs passes of up to batch_tokens rows
// over all requests in flight. Requests share the KV of equal prefixes; a request that does not fit the pool
// waits until it does, or is refused when it never can. Destroying the engine cancels what is in flight.
// Threads: every function may be called from any thread at any time, except from within on_text.
// Errors: sentences that name what, where and what to do; a failed request never affects another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rhapsode/options.h"
#include "rhapsode/result.h"

namespace rhapsode {

enum class FinishReason : uint8_t {
  kEnd,  // the model ended its turn
  kStopString,
  kLength,   // max_tokens
  kContext,  // the context is full
  kCancelled,
};
const char* to_string(FinishReason reason);  // "end", "stop", "length", "context", "cancelled"

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0.0f;
};

struct GeneratedToken {
  int32_t token = 0;
  float logprob = 0.0f;           // only with top_logprobs >= 0
  std::vector<TokenLogprob> top;  // the likeliest, best first
  std::vector<float> logits;      // only on request: [vocabulary], as the model gave them
};

// Every token of the prompt is counted in exactly one of cached and evaluated.
struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;     // read from the prefix cache
  int evaluated_tokens = 0;  // run through the model for the prompt
  int generated_tokens = 0;
  int truncated_tokens = 0;  // dropped from the prompt's front by request
  int rolled_tokens = 0;     // dropped from a full context while generating, by request
  std::string cache_miss;    // where and why the cached prefix ended; empty when all of it was usable
};

struct StageTimes {
  double queue_ms = 0;  // submit to first pass
  double tokenize_ms = 0;
  double prefill_ms = 0;  // passes that evaluated the prompt
  double ttft_ms = 0;     // submit to first token
  double decode_ms = 0;
  double sample_ms = 0;
  double total_ms = 0;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

struct Response {
  std::string text;
  std::vector<GeneratedToken> tokens;
  std::vector<float> prompt_logprobs;  // [prompt_tokens - 1], of tokens 1.. given those before
  FinishReason finish = FinishReason::kEnd;
  Usage usage;
  StageTimes timing;
};

struct ModelInfo {
  std::string name;
  std::string architecture;
  std::string weights;  // the dominant weight type, "Q4_K"
  uint64_t file_bytes = 0;
  uint64_t parameters = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int trained_context_tokens = 0;
  uint64_t kv_bytes_per_token = 0;
  double load_ms = 0;
};

struct EngineStats {
  uint64_t kv_cap_bytes = 0;
  uint64_t kv_used_bytes = 0;    // pages held by sequences or the prefix cache
  uint64_t kv_cached_bytes = 0;  // of those, only held by the prefix cache
  uint64_t passes = 0;
  uint64_t rows = 0;  // tokens evaluated
  uint64_t cached_tokens = 0;
  uint64_t evictions = 0;    // prefix-cache pages dropped to make room
  uint64_t preemptions = 0;  // requests put back into the queue because the pool was full
  uint64_t page_copies = 0;  // copy-on-write copies
  int running = 0;
  int waiting = 0;
};

// A request in flight. Copies refer to the same request; dropping the last one does not cancel it.
class Generation {
 public:
  // Blocks until the request has ended. A cancelled one returns its text so far with
  // FinishReason::kCancelled.
  Result<Response> wait();
  // Ends the request within one pass. Safe to call at any time, more than once.
  void cancel();
  bool done() const;

 private:
  friend class Engine;
  friend class Memory;
  struct State;
  std::shared_ptr<State> state_;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request. Fails at once when it is malformed or can never fit.
  Result<Generation> submit(Request request);
  // submit() and wait().
  Result<Response> run(Request request);

  // Token ids of plain text (no special tokens are parsed) and back.
  Result<std::vector<int32_t>> tokenize(const std::string& text, bool add_special) const;
  std::string detokenize(const std::vector<int32_t>& tokens) const;
  // The token ids a chat prompt becomes, as submit() would evaluate them.
  Result<std::vector<int32_t>> render(const std::vector<Message>& messages) const;

  ModelInfo model() const;
  EngineStats stats() const;

 private:
  friend class Memory;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rhapsode
