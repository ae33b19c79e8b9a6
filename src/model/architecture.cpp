#include "model/architecture.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rhapsode::model {

namespace {

using kernels::RopePairing;
using kernels::RopeSpec;
using kernels::WeightUse;

constexpr int kMaxLayers = 1024;
constexpr int kMaxWidth = 1 << 20;

// Reads "ARCH.key" entries of one file and remembers the first complaint.
class Reader {
 public:
  Reader(const GgufFile& file, std::string architecture)
      : file_(file), prefix_(std::move(architecture) + ".") {}

  int required(const std::string& key, int most) {
    auto value = file_.integer(prefix_ + key);
    if (!value) return complain("{}: '{}{}' is missing or no integer", file_.path().string(), prefix_, key);
    return bounded(key, *value, most);
  }
  int optional(const std::string& key, int fallback, int most) {
    auto value = file_.integer(prefix_ + key);
    return value ? bounded(key, *value, most) : fallback;
  }
  double number(const std::string& key, double fallback) {
    auto value = file_.number(prefix_ + key);
    if (value && !std::isfinite(*value)) {
      complain("{}: '{}{}' is not a finite number", file_.path().string(), prefix_, key);
      return fallback;
    }
    return value.value_or(fallback);
  }
  std::string text(const std::string& key, const std::string& fallback) {
    return std::string(file_.text(prefix_ + key).value_or(fallback));
  }
  const GgufArray* array(const std::string& key) { return file_.array(prefix_ + key); }

  template <typename... Args>
  int complain(fmt::format_string<Args...> format, Args&&... args) {
    if (status_.ok()) status_ = make_error(ErrorKind::kUnsupported, format, std::forward<Args>(args)...);
    return 1;
  }
  const Status& status() const { return status_; }
  const std::string& prefix() const { return prefix_; }
  const GgufFile& file() const { return file_; }

 private:
  int bounded(const std::string& key, int64_t value, int most) {
    if (value >= 1 && value <= most) return static_cast<int>(value);
    return complain("{}: '{}{}' is {}; it must lie in 1..{}", file_.path().string(), prefix_, key, value,
                    most);
  }

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

// Per-pair divisors of Llama 3, stored as a tensor of the file.
void read_rope_factors(Reader& reader, RopeSpec& rope) {
  const GgufTensor* tensor = reader.file().tensor("rope_freqs.weight");
  if (!tensor) return;
  const size_t pairs = rope.dimensions / 2;
  if (tensor->type != GGML_TYPE_F32 || tensor->data.size() != pairs * sizeof(float)) {
    reader.complain("{}: tensor 'rope_freqs.weight' must hold {} float32 values",
                    reader.file().path().string(), pairs);
    return;
  }
  std::vector<float> values(pairs);
  std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
  for (float value : values) {
    if (!(value > 0.0f) || !std::isfinite(value)) {
      reader.complain("{}: tensor 'rope_freqs.weight' holds {}", reader.file().path().string(), value);
    }
  }
  rope.factors.assign(values.begin(), values.end());
}

RopeSpec read_rope(Reader& reader, const Architecture& a) {
  RopeSpec rope;
  rope.dimensions = reader.optional("rope.dimension_count", a.head_dim, a.head_dim);
  if (rope.dimensions % 2) reader.complain("{}: '{}rope.dimension_count' is odd", a.title, reader.prefix());
  rope.pairing = a.name == "llama" ? RopePairing::kAdjacent : RopePairing::kHalves;
  rope.theta = reader.number("rope.freq_base", 10000.0);
  if (!(rope.theta > 0)) reader.complain("{}: '{}rope.freq_base' is not positive", a.title, reader.prefix());

  const std::string kind = reader.text("rope.scaling.type", "linear");
  const double factor = reader.number("rope.scaling.factor", reader.number("rope.scale_linear", 0.0));
  if (factor < 0) reader.complain("{}: '{}rope.scaling.factor' is negative", a.title, reader.prefix());
  if (kind != "none" && factor != 0.0) rope.frequency_scale = 1.0 / factor;
  rope.yarn_attention_factor = reader.number("rope.scaling.attn_factor", 1.0);
  if (kind == "yarn") {
    rope.yarn_extrapolation = 1.0;
    rope.yarn_original_context =
        reader.optional("rope.scaling.original_context_length", a.trained_context_tokens, 1 << 30);
    rope.yarn_beta_fast = reader.number("rope.scaling.yarn_beta_fast", 32.0);
    rope.yarn_beta_slow = reader.number("rope.scaling.yarn_beta_slow", 1.0);
    if (reader.number("rope.scaling.yarn_log_multiplier", 0.0) != 0.0) {
      reader.complain("{}: '{}rope.scaling.yarn_log_multiplier' is not supported", a.title, reader.prefix());
    }
  } else if (kind != "none" && kind != "linear") {
    reader.complain(
        "{}: rope scaling '{}' depends on the length of the context, so shifted pages would not be exact; "
        "use a model with plain, linear, YaRN or Llama-3 scaling",
        reader.file().path().string(), kind);
  }
  for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (reader.file().tensor(name)) {
      reader.complain(
          "{}: tensor '{}' (LongRoPE) makes positions depend on the context's length; not supported",
          reader.file().path().string(), name);
    }
  }
  if (a.name == "llama") read_rope_factors(reader, rope);
  return rope;
}

// gemma3 reads through a window in five layers of six, with a rotary base of their own.
void read_windows(Reader& reader, Architecture& a, RopeSpec global) {
  const int window = reader.optional("attention.sliding_window", 0, std::numeric_limits<int>::max());
  RopeSpec local = global;
  local.theta = reader.number("rope.freq_base_swa", 10000.0);
  local.frequency_scale = 1.0;
  const GgufArray* pattern_array = reader.array("attention.sliding_window_pattern");
  const int period = pattern_array ? 0 : reader.optional("attention.sliding_window_pattern", 6, kMaxLayers);
  if (pattern_array && pattern_array->size() < a.attention.size()) {
    reader.complain("{}: '{}attention.sliding_window_pattern' has {} entries for {} layers", a.title,
                    reader.prefix(), pattern_array->size(), a.attention.size());
    return;
  }
  for (size_t layer = 0; layer < a.attention.size(); ++layer) {
    const bool windowed = pattern_array ? pattern_array->integer(layer).value_or(0) != 0
                                        : static_cast<int>(layer) % period < period - 1;
    if (window > 0 && windowed) {
      a.attention[layer].window = window;
      a.attention[layer].rope = local;
    }
  }
}

void read_attention(Reader& reader, Architecture& a) {
  kernels::AttendLayer layer;
  layer.heads = a.heads;
  layer.scale = 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  // The 27B of gemma3 (62 layers) scales by its embedding instead of its head.
  if (a.name == "gemma3" && a.layers == 62)
    layer.scale = 1.0f / std::sqrt(static_cast<float>(a.embedding / a.heads));
  layer.soft_cap = static_cast<float>(reader.number("attn_logit_softcapping", 0.0));
  layer.rope = read_rope(reader, a);
  a.attention.assign(a.layers, layer);
  // Some converters write a window for llama and qwen2 files too; those models do not use it.
  if (a.name == "gemma3") read_windows(reader, a, layer.rope);
}

void check_head_shape(Reader& reader, const Architecture& a) {
  const std::string file = reader.file().path().string();
  if (a.heads % a.kv_heads) {
    reader.complain("{}: {} heads cannot share {} KV heads evenly", file, a.heads, a.kv_heads);
  }
  if (a.head_dim % 16 || a.head_dim > 256) {
    reader.complain("{}: a head dimension of {} does not fit pages; it must be a multiple of 16 up to 256",
                    file, a.head_dim);
  }
  if (reader.optional("attention.value_length", a.head_dim, kMaxWidth) != a.head_dim) {
    reader.complain("{}: keys and values of different length are not supported", file);
  }
  if (reader.file().integer(reader.prefix() + "expert_count").value_or(0) > 0) {
    reader.complain("{}: mixtures of experts are not supported", file);
  }
}

}  // namespace

kernels::KvShape Architecture::kv_shape(kernels::KvType type) const {
  return {.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim, .type = type};
}

Result<Architecture> parse_architecture(const GgufFile& file) {
  Architecture a;
  const std::string path = file.path().string();
  a.name = std::string(file.text("general.architecture").value_or(""));
  static constexpr const char* kKnown[] = {"llama", "qwen2", "qwen3", "gemma3"};
  if (std::none_of(std::begin(kKnown), std::end(kKnown),
                   [&](const char* known) { return a.name == known; })) {
    return make_error(
        ErrorKind::kUnsupported,
        "{}: architecture '{}' is not supported; this build runs llama, qwen2, qwen3 and gemma3", path,
        a.name);
  }
  Reader reader(file, a.name);
  a.title = std::string(file.text("general.name").value_or(file.path().stem().string()));
  a.layers = reader.required("block_count", kMaxLayers);
  a.embedding = reader.required("embedding_length", kMaxWidth);
  a.feed_forward = reader.required("feed_forward_length", 1 << 24);
  if (reader.array("attention.head_count") || reader.array("feed_forward_length")) {
    reader.complain("{}: layers of different shape are not supported", path);
  }
  a.heads = reader.required("attention.head_count", 4096);
  a.kv_heads = reader.optional("attention.head_count_kv", a.heads, a.heads);
  a.head_dim = reader.optional("attention.key_length", a.embedding / a.heads, kMaxWidth);
  a.trained_context_tokens = reader.required("context_length", 1 << 30);
  a.norm_epsilon = static_cast<float>(reader.number("attention.layer_norm_rms_epsilon", 0.0));
  if (!(a.norm_epsilon > 0)) {
    reader.complain("{}: '{}attention.layer_norm_rms_epsilon' is missing or not positive", path,
                    reader.prefix());
  }
  const bool gemma = a.name == "gemma3";
  a.query_key_norm = gemma || a.name == "qwen3";
  a.post_norms = gemma;
  a.activation = gemma ? kernels::Activation::kGelu : kernels::Activation::kSilu;
  a.embedding_scale = gemma ? std::sqrt(static_cast<float>(a.embedding)) : 1.0f;
  a.final_soft_cap = static_cast<float>(reader.number("final_logit_softcapping", 0.0));
  a.tied_output = file.tensor("output.weight") == nullptr;
  const GgufTensor* table = file.tensor("token_embd.weight");
  if (!table) return make_error(ErrorKind::kCorrupt, "{}: tensor 'token_embd.weight' is missing", path);
  a.vocabulary = static_cast<int>(std::min<int64_t>(table->shape[1], std::numeric_limits<int>::max()));
  check_head_shape(reader, a);
  if (!reader.status().ok()) return reader.status().error();
  read_attention(reader, a);
  if (!reader.status().ok()) return reader.status().error();
  for (const GgufTensor& tensor : file.tensors()) {
    uint64_t elements = 1;
    for (int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
    a.parameters += elements;
  }
  return a;
}

std::vector<TensorNeed> tensor_needs(const Architecture& a) {
  const int64_t width = a.embedding;
  const int64_t q = static_cast<int64_t>(a.heads) * a.head_dim;
  const int64_t kv = static_cast<int64_t>(a.kv_heads) * a.head_dim;
  std::vector<TensorNeed> needs = {
      {"token_embd.weight", width, a.vocabulary, WeightUse::kTable, false},
      {"output_norm.weight", width, 1, WeightUse::kVector, false},
  };
  if (!a.tied_output) needs.push_back({"output.weight", width, a.vocabulary, WeightUse::kMatrix, false});
  for (int layer = 0; layer < a.layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    auto matrix = [&](const char* name, int64_t columns, int64_t rows) {
      needs.push_back({block + name + ".weight", columns, rows, WeightUse::kMatrix, false});
      needs.push_back({block + name + ".bias", rows, 1, WeightUse::kVector, true});
    };
    auto vector = [&](const char* name, int64_t size) {
      needs.push_back({block + name + ".weight", size, 1, WeightUse::kVector, false});
    };
    vector("attn_norm", width);
    matrix("attn_q", width, q);
    matrix("attn_k", width, kv);
    matrix("attn_v", width, kv);
    matrix("attn_output", q, width);
    if (a.query_key_norm) vector("attn_q_norm", a.head_dim), vector("attn_k_norm", a.head_dim);
    if (a.post_norms) vector("post_attention_norm", width), vector("post_ffw_norm", width);
    vector("ffn_norm", width);
    matrix("ffn_gate", width, a.feed_forward);
    matrix("ffn_up", width, a.feed_forward);
    matrix("ffn_down", a.feed_forward, width);
  }
  return needs;
}

}  // namespace rhapsode::model
