// The weights of one model on one back end: tensors by role, LoRA adapters joined to the matrices they
// change.
//
// A LoRA adapter (arXiv 2106.09685, GGUF "adapter" files) adds scale * alpha / rank * B(A x) to W x; several
// may be active at once, applied in the order given. They change every key and value, so they are part of
// every cache key. Ownership: refers to the mappings of the files, which outlive it. Threads: const after
// load().
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/graph.h"
#include "model/architecture.h"
#include "model/gguf_file.h"

namespace rhapsode::model {

struct LoraDelta {
  kernels::Weight a;
  kernels::Weight b;
  float scale = 0.0f;
};

struct Linear {
  kernels::Weight matrix;
  kernels::Weight bias;  // may be absent
  std::vector<LoraDelta> deltas;
};

struct LayerWeights {
  kernels::Weight attention_norm;
  Linear q, k, v, output;
  kernels::Weight q_norm, k_norm;       // qwen3, gemma3
  kernels::Weight post_attention_norm;  // gemma3
  kernels::Weight feed_forward_norm;
  Linear gate, up, down;
  kernels::Weight post_feed_forward_norm;  // gemma3
};

struct Adapter {
  std::filesystem::path path;
  float scale = 1.0f;
};

class ModelWeights {
 public:
  // Gives every tensor of `file` to the back end; refuses by name what is missing or misshapen.
  static Result<ModelWeights> load(const GgufFile& file, const Architecture& architecture,
                                   std::span<const Adapter> adapters, kernels::Backend& backend);

  kernels::Weight embedding;
  kernels::Weight final_norm;
  Linear output;
  std::vector<LayerWeights> layers;

 private:
  std::vector<std::unique_ptr<GgufFile>> adapter_files_;
};

// What a pass is run for. *States* are the residual stream entering block state_layer(), before its norm:
// what routing keys are made of (design: "Find").
enum class PassGoal : uint8_t {
  kLogits,   // logits [vocabulary] of the output rows; keys and values of every layer
  kStates,   // states [embedding] of the output rows; nothing above state_layer() is run
  kEncode,   // states of the output rows, and keys and values of every layer
  kEarlyKv,  // keys and values of the layers up to early_layer(); nothing above is run, no result is of use
};
inline constexpr int kPassGoals = 4;

// ceil(layers / 5).
int state_layer(const Architecture& architecture);
// The second one: the first whose keys and values depend on what stands in front of a token.
int early_layer(const Architecture& architecture);

// The forward pass. `weights` outlives the recipe.
kernels::Recipe forward_recipe(const Architecture& architecture, const ModelWeights& weights,
                               PassGoal goal = PassGoal::kLogits);

}  // namespace rhapsode::model
