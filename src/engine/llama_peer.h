// libllama as a peer: the same GGUF run by llama.cpp's own engine, to compare logits and speed with.
//
// Used by `bench --compare-llama` and the parity tests, never to answer a request. Threads: one at a time.
#pragma once

#include <llama.h>

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/logit_source.h"
#include "model/weights.h"

namespace rhapsode::engine {

struct LlamaPeerOptions {
  std::filesystem::path model;
  std::vector<model::Adapter> adapters;
  int threads = 1;
  int context_tokens = 4096;
  int micro_batch_tokens = 512;
  bool flash_attention = true;
  bool float32_cache =
      false;  // needs flash_attention off: with it on, libllama rounds a float32 cache to float16
};

class LlamaPeer final : public LogitSource {
 public:
  static Result<std::unique_ptr<LlamaPeer>> open(const LlamaPeerOptions& options);
  ~LlamaPeer() override;

  void reset() override;
  Result<std::span<const float>> evaluate(std::span<const int32_t> tokens) override;

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
    void operator()(llama_adapter_lora* adapter) const { llama_adapter_lora_free(adapter); }
  };
  LlamaPeer() = default;

  std::unique_ptr<llama_model, Free> model_;
  std::vector<std::unique_ptr<llama_adapter_lora, Free>> adapters_;
  std::unique_ptr<llama_context, Free> context_;
  int batch_tokens_ = 0;
  int vocabulary_ = 0;
};

}  // namespace rhapsode::engine
