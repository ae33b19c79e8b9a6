// A loaded model that can be run: file, vocabulary, weights on a back end, and its forward pass.
//
// Everything above it (scheduler, bench, verify) evaluates batches of rows through evaluate(); it knows no
// request. Ownership: keeps the file mapped and the weights alive; sequences' pages belong to a
// store::PagePool of kv_shape(). Threads: evaluate() by one thread at a time; the const functions by any.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/graph.h"
#include "model/architecture.h"
#include "model/gguf_file.h"
#include "model/weights.h"
#include "rhapsode/options.h"
#include "store/page_pool.h"
#include "text/tokenizer.h"

namespace rhapsode::engine {

// From so many rows on a pass uses the wide weights, if there are any.
inline constexpr int kWideRows = 32;

struct RunnerOptions {
  std::filesystem::path model;
  // The same model with weights that are faster for many rows at once (a BF16 copy); empty: none.
  std::filesystem::path wide_model;
  // The file the vocabulary is read from; empty: the model's own. (A weight copy keeps its original's
  // vocabulary.)
  std::filesystem::path vocabulary;
  std::vector<model::Adapter> adapters;
  kernels::KvType kv_type = kernels::KvType::kF16;
  Device device = Device::kCpu;
  int devices = 1;  // that pages are spread over (kernels/sharded_backend.h); GPUs, or shards on the CPU
  // Which GPUs these are; empty: the first ones. A GPU that is named twice takes two shares (for tests: they
  // exchange by copies, as NCCL serves a GPU once), and one that is named alone exchanges with itself.
  std::vector<int> gpus;
  int threads = 1;
  kernels::SparseOptions sparse;  // for plans with read budgets
  bool deterministic = false;
  bool layer_times = false;           // for tracing
  bool reference_top_logits = false;  // also on the CPU, by sorting: for tests
};

class ModelRunner {
 public:
  // Maps and checks the file, then loads vocabulary and weights. Typical: 0.3 s for 0.5 GB in the page cache.
  static Result<std::unique_ptr<ModelRunner>> open(const RunnerOptions& options);
  ModelRunner(const ModelRunner&) = delete;
  ModelRunner& operator=(const ModelRunner&) = delete;

  // Runs one batch; logits [output_rows][vocabulary], log-probabilities [output_rows] when the batch has
  // targets, or states [output_rows][embedding] ([pools][embedding] when the batch pools them), valid until
  // the next call. Nothing when the batch asks for top logits: they, and rows on demand, are the back end's
  // (kernels/graph.h). The plan is validated here.
  Result<std::span<const float>> evaluate(const kernels::BatchInput& batch,
                                          model::PassGoal goal = model::PassGoal::kLogits);
  // Rows of logits a pass should ask for at most: they are megabytes each where they are not scored in place.
  int most_scored_rows() const { return backend_->scores_targets() ? 1024 : 128; }
  // Rows a pass may have at most; 0: no limit.
  int most_rows() const { return backend_->fixed_rows(); }

  const model::Architecture& architecture() const { return architecture_; }
  const model::GgufFile& file() const { return file_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  std::shared_ptr<const text::Tokenizer> shared_tokenizer() const { return tokenizer_; }
  const kernels::KvShape& kv_shape() const { return kv_shape_; }
  // A pool of pages that this model's passes can read; a cap of 0: as many bytes as its memory has to spare.
  Result<std::unique_ptr<store::PagePool>> make_pool(uint64_t cap_bytes, size_t bounds_bytes = 0);
  // A pool of the host's memory beside that one; null where pages lie on the host. A cap of 0: as many bytes
  // as such memory has to spare.
  Result<std::unique_ptr<store::PagePool>> make_ram_pool(uint64_t cap_bytes);
  kernels::Backend& backend() { return *backend_; }
  // That a pool's pages are spread over, evenly.
  int devices() const { return devices_; }

 private:
  Status load_wide(const RunnerOptions& options);
  Result<std::span<const float>> score(std::span<const float> logits, std::span<const int32_t> targets);
  Result<std::span<const float>> pool(const kernels::BatchInput& batch, int recipe);
  std::array<int, model::kPassGoals> add_recipes(const model::ModelWeights& weights);
  ModelRunner(model::GgufFile file, model::Architecture architecture)
      : file_(std::move(file)), architecture_(std::move(architecture)) {}

  model::GgufFile file_;
  model::Architecture architecture_;
  kernels::KvShape kv_shape_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<kernels::Backend> backend_;
  int devices_ = 1;
  model::ModelWeights weights_;
  std::array<int, model::kPassGoals> recipes_{};  // by PassGoal
  std::unique_ptr<model::GgufFile> wide_file_;    // null: weights_ serve every pass
  model::ModelWeights wide_weights_;
  std::array<int, model::kPassGoals> wide_recipes_{};
  std::vector<float> scores_;  // of the last batch with targets, or its pooled rows
};

}  // namespace rhapsode::engine
