// What a caller chooses: the options of an engine and of one request. Plain values with defaults that work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode {

enum class KvStorage : uint8_t { kF32, kF16, kBF16, kI8 };
enum class WeightFormat : uint8_t {
  kShipped,  // the file's own quantisation
  kBF16,     // a BF16 copy, made once and kept in the cache folder: faster prefill on CPUs with bf16 dot
             // products
  kMixed,    // the copy for passes of many rows (prefill), the shipped weights for decode; both in memory
};

// What computes. kAuto: the GPU where the program has CUDA and finds one that it can use (compute
// capability 9.0), and nothing asks for what only the CPU does (deterministic, sparse decode); else the CPU.
enum class Device : uint8_t { kAuto, kCpu, kCuda };

struct AdapterOptions {
  std::filesystem::path path;  // a LoRA adapter in GGUF
  float scale = 1.0f;
};

// Block-sparse decode: behind a long context a decode step reads only the tokens that can matter most, found
// by bounds on the attention scores of small groups of tokens. Approximate, and said so in
// Usage::sparse_tokens; exact while a context is within the budget. Prefill always reads everything.
enum class KeyBounds : uint8_t {
  kMean,  // mean key, and a quarter of the extent in each dimension: an estimate, which chooses best
  kBox,   // smallest and largest key in each dimension: a bound
  kBall,  // mean and radius: a loose bound in half the memory and work
};

struct SparseDecodeOptions {
  int budget_tokens = 0;  // most tokens a step reads in each layer and KV head, at least 256; 0: all
  int group_tokens =
      16;  // tokens under one bound, read together: 16, 32 or 64. Smaller finds more, costs more
  KeyBounds bounds = KeyBounds::kMean;
  bool per_layer = false;  // all KV heads of a layer read the same tokens, instead of each its own
};

struct EngineOptions {
  std::filesystem::path model;           // a GGUF file
  std::vector<AdapterOptions> adapters;  // applied together, in order
  WeightFormat weights = WeightFormat::kShipped;
  Device device = Device::kAuto;  // on a GPU `weights` and `threads` change nothing but loading
  int devices = 1;  // GPUs that hold pages and codes, each its share; weights lie on all of them. On the CPU:
                    // shares of it, to no gain, for trying out
  KvStorage kv_type = KvStorage::kF16;
  int threads = 0;                      // 0: every core the process may use
  int context_tokens = 0;               // most tokens one sequence may hold; 0: what the model was trained on
  bool beyond_trained_context = false;  // allow context_tokens above the trained length
  int batch_tokens = 512;  // most rows evaluated in one pass; a prompt is prefilled in such chunks
  int pass_ms = 250;       // aim for a pass while somebody waits for the next token: shorter prefill chunks
  uint64_t kv_cap_bytes = 0;          // bytes of KV pages, prefix cache included; 0: a quarter of the memory,
                                      // or what the GPU has to spare
  uint64_t kv_ram_cap_bytes = 0;      // with a GPU: pinned memory of the host that keeps KV of a memory's
                                      // passages beside it; 0: an eighth of the memory
  bool prefix_cache = true;           // keep and reuse the KV of exact prefixes
  SparseDecodeOptions sparse_decode;  // off by default
  bool deterministic = false;         // same bytes whatever the cache, batch and thread count; slower
  std::filesystem::path cache_folder;  // for weight copies; empty: $RHAPSODE_HOME or ~/.cache/rhapsode
  uint64_t weight_cache_cap_bytes = 8ull << 30;
  std::filesystem::path trace_file;  // Perfetto JSON of every stage; empty: no tracing
};

struct SamplingOptions {
  float temperature = 0.0f;         // 0: the likeliest token, lowest id on ties
  int top_k = 0;                    // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off
  int repetition_window = 64;       // generated and prompt tokens looked back on; -1: all
  uint32_t seed = 0;
  std::string grammar;      // GBNF, root rule "root"
  std::string json_schema;  // JSON schema; "{}" for any JSON; excludes grammar
};

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// One completion to make. The prompt is exactly one of `messages` (rendered by the model's chat template),
// `text` (raw) or `tokens`. Text never turns into special tokens; only the template's own do.
struct Request {
  std::vector<Message> messages;
  std::string text;
  std::vector<int32_t> tokens;

  int max_tokens = 256;  // 0: prefill only, to warm the prefix cache
  SamplingOptions sampling;
  std::vector<std::string> stop;  // the text ends before the first of these
  int decode_budget_tokens = -1;  // of sparse decode; -1: the engine's, 0: read everything
  bool ignore_end = false;        // go on after the model's end-of-generation token
  int top_logprobs = -1;          // -1: no log-probs; n: those of the chosen token and of the n likeliest
  bool logits =
      false;  // keep the whole row of logits behind every generated token (4 bytes x vocabulary each)
  bool prompt_logprobs = false;  // log-probs of the prompt's tokens, each given those before it
  bool truncate_prompt =
      false;  // too long a prompt loses its oldest tokens (reported) instead of being refused
  bool roll_context =
      false;  // a full context loses its oldest pages but the first (reported) instead of ending

  // Called on the engine's thread with each new piece of text: valid UTF-8, never part of a stop string.
  // Keep it short: it holds up every sequence of the batch. Return false to cancel.
  std::function<bool(std::string_view)> on_text;
};

}  // namespace rhapsode
