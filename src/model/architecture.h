// What a GGUF file says about its transformer: sizes, rotary kinds and the layer plan, for the architectures
// this build can treat exactly: llama, qwen2, qwen3, gemma3.
//
// parse_architecture() refuses, naming the key or tensor, whatever would make the forward pass inexact:
// unknown architectures, mixtures of experts, head sizes that pages cannot hold, rotary kinds whose angle
// depends on the length (dynamic NTK, LongRoPE). Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/graph.h"
#include "model/gguf_file.h"

namespace rhapsode::model {

struct Architecture {
  std::string name;   // general.architecture
  std::string title;  // general.name, or the file's name
  int layers = 0;
  int embedding = 0;
  int feed_forward = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int trained_context_tokens = 0;
  float norm_epsilon = 1e-5f;
  float embedding_scale = 1.0f;  // gemma: sqrt(embedding)
  float final_soft_cap = 0.0f;
  bool query_key_norm = false;  // qwen3, gemma3
  bool post_norms = false;      // gemma3: norms after attention and feed-forward too
  bool tied_output = false;     // the embedding table is the output matrix
  kernels::Activation activation = kernels::Activation::kSilu;
  std::vector<kernels::AttendLayer> attention;  // [layers]
  uint64_t parameters = 0;

  kernels::KvShape kv_shape(kernels::KvType type) const;
};

Result<Architecture> parse_architecture(const GgufFile& file);

// Name and shape of every tensor the forward pass of `architecture` needs; used to load and to refuse by
// name.
struct TensorNeed {
  std::string name;
  int64_t columns = 0;
  int64_t rows = 1;
  kernels::WeightUse use = kernels::WeightUse::kMatrix;
  bool optional = false;
};
std::vector<TensorNeed> tensor_needs(const Architecture& architecture);

}  // namespace rhapsode::model
