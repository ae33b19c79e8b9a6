#include "engine/model_runner.h"

#include <algorithm>
#include <future>
#include <numeric>

#include "kernels/cpu/ggml_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/sharded_cuda.h"
#include "kernels/sharded_backend.h"
#include "text/library_log.h"
#include "text/logits.h"

namespace rhapsode::engine {

namespace {

bool uses_gpu(const RunnerOptions& options) {
  if (options.device != Device::kAuto) return options.device == Device::kCuda;
  return !options.deterministic && kernels::cuda::why_no_device().empty();
}

Result<std::unique_ptr<kernels::Backend>> make_backend(const RunnerOptions& options,
                                                       kernels::BackendOptions backend) {
  if (!uses_gpu(options)) {
    return options.devices > 1 ? kernels::make_sharded_cpu_backend(std::move(backend), options.devices)
                               : kernels::cpu::make_ggml_backend(std::move(backend));
  }
  std::vector<int> gpus = options.gpus;
  if (gpus.empty() && options.devices == 1) return kernels::cuda::make_cuda_backend(std::move(backend));
  if (gpus.empty()) {
    gpus.resize(static_cast<size_t>(options.devices));
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  return kernels::cuda::make_sharded_cuda_backend(std::move(backend), gpus);
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::open(const RunnerOptions& options) {
  RH_TRY(model::GgufFile file, model::GgufFile::open(options.model));
  RH_TRY(model::Architecture architecture, model::parse_architecture(file));
  // ggml's log is one for the process: set before two threads use the library, never while they do.
  RH_TRY_STATUS(kernels::cpu::load_ggml());
  const text::LibraryLog log;
  // The vocabulary takes as long as the weights; both read different parts of the file.
  auto vocabulary = std::async(std::launch::async, [&] {
    return text::Tokenizer::load(options.vocabulary.empty() ? options.model : options.vocabulary);
  });
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(file), std::move(architecture)));
  runner->kv_shape_ = runner->architecture_.kv_shape(options.kv_type);

  kernels::BackendOptions backend_options;
  backend_options.threads = options.threads;
  backend_options.deterministic = options.deterministic;
  backend_options.layer_times = options.layer_times;
  backend_options.reference_top_logits = options.reference_top_logits;
  backend_options.kv = runner->kv_shape_;
  backend_options.layers = runner->architecture_.attention;
  backend_options.sparse = options.sparse;
  RH_TRY(runner->backend_, make_backend(options, std::move(backend_options)));
  runner->devices_ = options.gpus.empty() ? options.devices : static_cast<int>(options.gpus.size());
  RH_TRY(runner->weights_, model::ModelWeights::load(runner->file_, runner->architecture_, options.adapters,
                                                     *runner->backend_));
  runner->recipes_ = runner->add_recipes(runner->weights_);
  if (!options.wide_model.empty() && !uses_gpu(options)) RH_TRY_STATUS(runner->load_wide(options));
  RH_TRY(runner->tokenizer_, vocabulary.get());
  if (runner->tokenizer_->size() > runner->architecture_.vocabulary) {
    return make_error(ErrorKind::kCorrupt, "{}: the vocabulary has {} tokens, the embedding table {}",
                      options.model.string(), runner->tokenizer_->size(), runner->architecture_.vocabulary);
  }
  return runner;
}

Result<std::unique_ptr<store::PagePool>> ModelRunner::make_pool(uint64_t cap_bytes, size_t bounds_bytes) {
  std::unique_ptr<kernels::PageMemory> memory = backend_->new_page_memory();
  const uint64_t cap = cap_bytes > 0 ? cap_bytes : memory->suggested_bytes();
  return store::PagePool::create(kv_shape_, cap, bounds_bytes, std::move(memory));
}

Result<std::unique_ptr<store::PagePool>> ModelRunner::make_ram_pool(uint64_t cap_bytes) {
  std::unique_ptr<kernels::PageMemory> memory = backend_->new_page_memory()->new_staging();
  if (!memory) return std::unique_ptr<store::PagePool>();
  const uint64_t cap = cap_bytes > 0 ? cap_bytes : memory->suggested_bytes();
  return store::PagePool::create(kv_shape_, cap, 0, std::move(memory));
}

Status ModelRunner::load_wide(const RunnerOptions& options) {
  RH_TRY(model::GgufFile file, model::GgufFile::open(options.wide_model));
  wide_file_ = std::make_unique<model::GgufFile>(std::move(file));
  RH_TRY(const model::Architecture architecture, model::parse_architecture(*wide_file_));
  if (architecture.parameters != architecture_.parameters ||
      architecture.vocabulary != architecture_.vocabulary) {
    return make_error(ErrorKind::kCorrupt, "{} is no copy of {}: their sizes differ",
                      options.wide_model.string(), options.model.string());
  }
  RH_TRY(wide_weights_, model::ModelWeights::load(*wide_file_, architecture_, options.adapters, *backend_));
  wide_recipes_ = add_recipes(wide_weights_);
  return {};
}

std::array<int, model::kPassGoals> ModelRunner::add_recipes(const model::ModelWeights& weights) {
  std::array<int, model::kPassGoals> recipes{};
  for (model::PassGoal goal : {model::PassGoal::kLogits, model::PassGoal::kStates, model::PassGoal::kEncode,
                               model::PassGoal::kEarlyKv}) {
    recipes[static_cast<size_t>(goal)] =
        backend_->add_recipe(model::forward_recipe(architecture_, weights, goal));
  }
  return recipes;
}

Result<std::span<const float>> ModelRunner::evaluate(const kernels::BatchInput& batch, model::PassGoal goal) {
  if (static_cast<int>(batch.tokens.size()) != batch.plan->rows() || batch.tokens.empty()) {
    return make_error(ErrorKind::kInternal, "a batch of {} tokens with a plan of {} rows",
                      batch.tokens.size(), batch.plan->rows());
  }
  for (int32_t token : batch.tokens) {
    if (token < 0 || token >= architecture_.vocabulary) {
      return make_error(ErrorKind::kInvalidArgument, "token id {} is outside the vocabulary of {}", token,
                        architecture_.vocabulary);
    }
  }
  RH_TRY_STATUS(kernels::validate(*batch.plan, kv_shape_));
  const bool wide = wide_file_ && batch.plan->rows() >= kWideRows;
  const int recipe = (wide ? wide_recipes_ : recipes_)[static_cast<size_t>(goal)];
  if (batch.top_logits_of > 0) {
    const bool rows = goal == model::PassGoal::kLogits && batch.targets.empty() && batch.pools.empty();
    if (!rows || batch.top_logits_of > architecture_.vocabulary || !backend_->finds_top_logits()) {
      return make_error(ErrorKind::kInternal, "a pass that has no largest logits was asked for them");
    }
  }
  if (!batch.pools.empty()) {
    const auto pooled = std::accumulate(batch.pools.begin(), batch.pools.end(), int64_t{0});
    const bool states = goal == model::PassGoal::kStates || goal == model::PassGoal::kEncode;
    if (!states || !batch.targets.empty() || pooled != static_cast<int64_t>(batch.output_rows.size())) {
      return make_error(ErrorKind::kInternal, "{} output rows cannot be added up by {}",
                        batch.output_rows.size(), pooled);
    }
    return backend_->pools_outputs() ? backend_->run(batch, recipe) : pool(batch, recipe);
  }
  if (batch.targets.empty()) return backend_->run(batch, recipe);
  for (const int32_t target : batch.targets) {
    if (target < 0 || target >= architecture_.vocabulary || goal != model::PassGoal::kLogits) {
      return make_error(ErrorKind::kInternal, "token {} is no target of a pass", target);
    }
  }
  if (backend_->scores_targets()) return backend_->run(batch, recipe);
  kernels::BatchInput rows = batch;
  rows.targets = {};
  RH_TRY(const std::span<const float> logits, backend_->run(rows, recipe));
  return score(logits, batch.targets);
}

Result<std::span<const float>> ModelRunner::pool(const kernels::BatchInput& batch, int recipe) {
  kernels::BatchInput whole = batch;
  whole.pools = {};
  RH_TRY(std::span<const float> rows, backend_->run(whole, recipe));
  const size_t width = rows.size() / batch.output_rows.size();
  scores_.assign(batch.pools.size() * width, 0.0f);
  float* sum = scores_.data();
  for (const int32_t count : batch.pools) {
    for (int32_t row = 0; row < count; ++row, rows = rows.subspan(width)) {
      for (size_t i = 0; i < width; ++i) sum[i] += rows[i];
    }
    sum += width;
  }
  return std::span<const float>(scores_);
}

Result<std::span<const float>> ModelRunner::score(std::span<const float> logits,
                                                  std::span<const int32_t> targets) {
  const auto width = static_cast<size_t>(architecture_.vocabulary);
  if (logits.size() != targets.size() * width) {
    return make_error(ErrorKind::kInternal, "{} targets for {} logits", targets.size(), logits.size());
  }
  scores_.resize(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    RH_TRY(const double score, text::log_softmax_of(logits.subspan(row * width, width), targets[row]));
    scores_[row] = static_cast<float>(score);
  }
  return std::span<const float>(scores_);
}

}  // namespace rhapsode::engine
