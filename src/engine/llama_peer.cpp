#include "engine/llama_peer.h"

#include <algorithm>

#include "kernels/cpu/ggml_backend.h"

namespace rhapsode::engine {

Result<std::unique_ptr<LlamaPeer>> LlamaPeer::open(const LlamaPeerOptions& options) {
  RH_TRY_STATUS(kernels::cpu::load_ggml());
  std::unique_ptr<LlamaPeer> peer(new LlamaPeer());
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  peer->model_.reset(llama_model_load_from_file(options.model.c_str(), model_params));
  if (!peer->model_) {
    return make_error(ErrorKind::kUnsupported, "{}: libllama does not load this model",
                      options.model.string());
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context_tokens;
  params.n_batch = params.n_ubatch = options.micro_batch_tokens;
  params.n_threads = params.n_threads_batch = options.threads;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = options.float32_cache ? GGML_TYPE_F32 : GGML_TYPE_F16;
  params.swa_full = true;
  params.no_perf = true;
  peer->context_.reset(llama_init_from_model(peer->model_.get(), params));
  if (!peer->context_) {
    return make_error(ErrorKind::kNoSpace, "libllama has no memory for a context of {} tokens",
                      options.context_tokens);
  }
  std::vector<llama_adapter_lora*> adapters;
  std::vector<float> scales;
  for (const model::Adapter& adapter : options.adapters) {
    peer->adapters_.emplace_back(llama_adapter_lora_init(peer->model_.get(), adapter.path.c_str()));
    if (!peer->adapters_.back()) {
      return make_error(ErrorKind::kUnsupported, "{}: libllama does not load this adapter",
                        adapter.path.string());
    }
    adapters.push_back(peer->adapters_.back().get());
    scales.push_back(adapter.scale);
  }
  if (!adapters.empty()) {
    llama_set_adapters_lora(peer->context_.get(), adapters.data(), adapters.size(), scales.data());
  }
  peer->batch_tokens_ = options.micro_batch_tokens;
  peer->vocabulary_ = llama_vocab_n_tokens(llama_model_get_vocab(peer->model_.get()));
  return peer;
}

LlamaPeer::~LlamaPeer() {
  // The context refers to the adapters, and the adapters to the model.
  context_.reset();
  adapters_.clear();
}

void LlamaPeer::reset() {
  llama_memory_clear(llama_get_memory(context_.get()), false);
}

Result<std::span<const float>> LlamaPeer::evaluate(std::span<const int32_t> tokens) {
  std::vector<int32_t> chunk;
  for (size_t begin = 0; begin < tokens.size(); begin += batch_tokens_) {
    const auto part = tokens.subspan(begin, std::min<size_t>(batch_tokens_, tokens.size() - begin));
    chunk.assign(part.begin(), part.end());
    const int status =
        llama_decode(context_.get(), llama_batch_get_one(chunk.data(), static_cast<int>(chunk.size())));
    if (status != 0) return make_error(ErrorKind::kInternal, "llama_decode failed with {}", status);
  }
  return std::span<const float>(llama_get_logits_ith(context_.get(), -1), vocabulary_);
}

}  // namespace rhapsode::engine
