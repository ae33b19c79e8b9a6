#include "model/weights.h"

#include <algorithm>
#include <map>
#include <string>

namespace rhapsode::model {

namespace {

using kernels::Weight;
using kernels::WeightSource;
using kernels::WeightUse;

using Deltas = std::map<std::string, std::vector<LoraDelta>, std::less<>>;

WeightSource source_of(const GgufTensor& tensor) {
  return {.name = tensor.name,
          .type = tensor.type,
          .columns = tensor.shape[0],
          .rows = tensor.shape[1],
          .data = tensor.data};
}

// Adds tensors of one model file to a back end, checking shapes against what the architecture needs.
class Loader {
 public:
  Loader(const GgufFile& file, kernels::Backend& backend) : file_(file), backend_(backend) {}

  Result<Weight> load(const TensorNeed& need) {
    const GgufTensor* tensor = file_.tensor(need.name);
    if (!tensor) {
      if (need.optional) return Weight{};
      return make_error(ErrorKind::kCorrupt, "{}: tensor '{}' is missing", file_.path().string(), need.name);
    }
    if (tensor->shape[0] != need.columns || tensor->shape[1] != need.rows ||
        tensor->shape[2] * tensor->shape[3] != 1) {
      return make_error(ErrorKind::kCorrupt, "{}: tensor '{}' is {} x {}; the model's sizes ask for {} x {}",
                        file_.path().string(), need.name, tensor->shape[0], tensor->shape[1], need.columns,
                        need.rows);
    }
    return backend_.add_weight(source_of(*tensor), need.use);
  }

 private:
  const GgufFile& file_;
  kernels::Backend& backend_;
};

Result<float> adapter_scale(const GgufFile& file, const Adapter& adapter, int64_t rank) {
  const double alpha = file.number("adapter.lora.alpha").value_or(0.0);
  if (rank < 1) return make_error(ErrorKind::kCorrupt, "{}: rank {}", file.path().string(), rank);
  return alpha != 0.0 ? static_cast<float>(adapter.scale * alpha / static_cast<double>(rank)) : adapter.scale;
}

Status check_adapter(const GgufFile& file, const Architecture& architecture) {
  const auto type = file.text("general.type").value_or("");
  const auto kind = file.text("adapter.type").value_or("");
  if (type != "adapter" || kind != "lora") {
    return make_error(ErrorKind::kUnsupported,
                      "{}: not a LoRA adapter (general.type '{}', adapter.type '{}')", file.path().string(),
                      type, kind);
  }
  const auto base = file.text("general.architecture").value_or("");
  if (base != architecture.name) {
    return make_error(ErrorKind::kInvalidArgument, "{}: an adapter for '{}', but the model is '{}'",
                      file.path().string(), base, architecture.name);
  }
  return {};
}

// Collects the deltas of one adapter by the name of the matrix they change.
Status load_adapter(const GgufFile& file, const Adapter& adapter, const GgufFile& model,
                    kernels::Backend& backend, Deltas& deltas) {
  const std::string path = file.path().string();
  for (const GgufTensor& a : file.tensors()) {
    const std::string name(a.name);
    const bool is_a = name.ends_with(".lora_a");
    if (!is_a && !name.ends_with(".lora_b")) {
      return make_error(ErrorKind::kUnsupported, "{}: tensor '{}' is no lora_a or lora_b", path, name);
    }
    const std::string target = name.substr(0, name.size() - 7);
    const GgufTensor* b = file.tensor(target + (is_a ? ".lora_b" : ".lora_a"));
    if (!b) return make_error(ErrorKind::kCorrupt, "{}: tensor '{}' has no other half", path, name);
    if (!is_a) continue;
    const GgufTensor* changed = model.tensor(target);
    if (!changed || !target.starts_with("blk.") || !target.ends_with(".weight")) {
      return make_error(ErrorKind::kUnsupported, "{}: adapts '{}', which is no matrix of this model's layers",
                        path, target);
    }
    if (a.shape[0] != changed->shape[0] || b->shape[1] != changed->shape[1] || a.shape[1] != b->shape[0]) {
      return make_error(ErrorKind::kCorrupt, "{}: '{}' does not fit the model's {} x {} matrix", path, target,
                        changed->shape[0], changed->shape[1]);
    }
    LoraDelta delta;
    RH_TRY(delta.scale, adapter_scale(file, adapter, b->shape[0]));
    RH_TRY(delta.a, backend.add_weight(source_of(a), WeightUse::kMatrix));
    RH_TRY(delta.b, backend.add_weight(source_of(*b), WeightUse::kMatrix));
    deltas[target].push_back(delta);
  }
  return {};
}

}  // namespace

Result<ModelWeights> ModelWeights::load(const GgufFile& file, const Architecture& architecture,
                                        std::span<const Adapter> adapters, kernels::Backend& backend) {
  ModelWeights weights;
  Deltas deltas;
  for (const Adapter& adapter : adapters) {
    RH_TRY(GgufFile opened, GgufFile::open(adapter.path));
    weights.adapter_files_.push_back(std::make_unique<GgufFile>(std::move(opened)));
    const GgufFile& adapter_file = *weights.adapter_files_.back();
    RH_TRY_STATUS(check_adapter(adapter_file, architecture));
    RH_TRY_STATUS(load_adapter(adapter_file, adapter, file, backend, deltas));
  }

  std::map<std::string, Weight, std::less<>> by_name;
  Loader loader(file, backend);
  for (const TensorNeed& need : tensor_needs(architecture)) {
    RH_TRY(by_name[need.name], loader.load(need));
  }
  auto linear = [&](const std::string& name) {
    auto found = deltas.find(name + ".weight");
    return Linear{by_name[name + ".weight"], by_name[name + ".bias"],
                  found == deltas.end() ? std::vector<LoraDelta>{} : found->second};
  };
  weights.embedding = by_name["token_embd.weight"];
  weights.final_norm = by_name["output_norm.weight"];
  weights.output.matrix = by_name["output.weight"];
  if (architecture.tied_output) {
    // Added a second time: as a matrix it may be repacked, as a table it may not.
    RH_TRY(weights.output.matrix, loader.load({"token_embd.weight", architecture.embedding,
                                               architecture.vocabulary, WeightUse::kMatrix}));
  }
  for (int layer = 0; layer < architecture.layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    LayerWeights& w = weights.layers.emplace_back();
    w.attention_norm = by_name[block + "attn_norm.weight"];
    w.q = linear(block + "attn_q");
    w.k = linear(block + "attn_k");
    w.v = linear(block + "attn_v");
    w.output = linear(block + "attn_output");
    w.feed_forward_norm = by_name[block + "ffn_norm.weight"];
    w.gate = linear(block + "ffn_gate");
    w.up = linear(block + "ffn_up");
    w.down = linear(block + "ffn_down");
    if (architecture.query_key_norm) {
      w.q_norm = by_name[block + "attn_q_norm.weight"];
      w.k_norm = by_name[block + "attn_k_norm.weight"];
    }
    if (architecture.post_norms) {
      w.post_attention_norm = by_name[block + "post_attention_norm.weight"];
      w.post_feed_forward_norm = by_name[block + "post_ffw_norm.weight"];
    }
  }
  return weights;
}

}  // namespace rhapsode::model
