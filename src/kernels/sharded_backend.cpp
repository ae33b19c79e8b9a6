#include "kernels/sharded_backend.h"

#include <algorithm>

#include "kernels/cpu/ggml_backend.h"
#include "kernels/lanes.h"
#include "kernels/plan_shards.h"
#include "kernels/sharded_code_search.h"
#include "kernels/sharded_page_memory.h"

namespace rhapsode::kernels {

namespace {

// Shards answer for one another: what one of them does, the others have to.
Status check_alike(const Backend& a, const Backend& b) {
  const bool alike = a.numerics() == b.numerics() && a.fixed_rows() == b.fixed_rows() &&
                     a.scores_targets() == b.scores_targets() && a.pools_outputs() == b.pools_outputs() &&
                     a.searches_codes() == b.searches_codes() && a.finds_top_logits() == b.finds_top_logits();
  if (alike) return {};
  return make_error(ErrorKind::kUnsupported, "devices that compute differently cannot share a memory");
}

class ShardedBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> make(const BackendOptions& options,
                                               std::vector<std::unique_ptr<Collective>> ends,
                                               const ShardMaker& make, const std::vector<int>& devices);
  ~ShardedBackend() override;

  Result<Weight> add_weight(const WeightSource& source, WeightUse use) override;
  int add_recipe(Recipe recipe) override {
    int number = -1;
    for (const auto& shard : shards_) number = shard->add_recipe(recipe);
    return number;
  }
  Result<std::span<const float>> run(const BatchInput& batch, int recipe) override;
  Result<std::span<const double>> mass_per_token(int sequence) const override {
    if (mass_kept_) return std::span<const double>(mass_[static_cast<size_t>(sequence)]);
    return make_error(ErrorKind::kInternal, "the last pass was not asked for attention mass");
  }
  int fixed_rows() const override { return first().fixed_rows(); }
  bool scores_targets() const override { return first().scores_targets(); }
  bool pools_outputs() const override { return first().pools_outputs(); }
  bool finds_top_logits() const override { return first().finds_top_logits(); }
  Result<TopLogits> top_logits(int output) const override { return first().top_logits(output); }
  Result<std::span<const float>> whole_rows(int first_output, int count) override;
  uint64_t weight_copy_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& shard : shards_) bytes += shard->weight_copy_bytes();
    return bytes;
  }
  std::unique_ptr<PageMemory> new_page_memory() override {
    std::vector<std::unique_ptr<PageMemory>> memories;
    for (const auto& shard : shards_) memories.push_back(shard->new_page_memory());
    return sharded_page_memory(std::move(memories));
  }
  bool searches_codes() const override { return first().searches_codes(); }
  Result<std::unique_ptr<CodeSearch>> new_code_search(int dimensions) override {
    std::vector<std::unique_ptr<CodeSearch>> shares;
    for (const auto& shard : shards_) {
      RH_TRY(std::unique_ptr<CodeSearch> share, shard->new_code_search(dimensions));
      shares.push_back(std::move(share));
    }
    return sharded_code_search(std::move(shares));
  }
  std::string_view numerics() const override { return first().numerics(); }
  std::vector<LayerSpan> layer_spans() const override { return first().layer_spans(); }

 private:
  explicit ShardedBackend(std::vector<std::unique_ptr<Collective>> ends)
      : ends_(std::move(ends)), plans_(static_cast<int>(ends_.size())) {
    shards_.resize(ends_.size());
  }
  const Backend& first() const { return *shards_.front(); }
  Status gather_mass(const BatchPlan& plan);

  std::vector<std::unique_ptr<Collective>> ends_;
  std::vector<std::unique_ptr<Backend>> shards_;
  std::unique_ptr<Lanes> lanes_;
  PlanShards plans_;
  std::vector<std::vector<double>> mass_;  // of each sequence
  bool mass_kept_ = false;                 // by the last run
};

Result<std::unique_ptr<Backend>> ShardedBackend::make(const BackendOptions& options,
                                                      std::vector<std::unique_ptr<Collective>> ends,
                                                      const ShardMaker& make,
                                                      const std::vector<int>& devices) {
  if (options.deterministic) {
    return make_error(ErrorKind::kUnsupported,
                      "deterministic passes run on one device: leave out --devices or --deterministic");
  }
  std::unique_ptr<ShardedBackend> backend(new ShardedBackend(std::move(ends)));
  RH_TRY(backend->lanes_, Lanes::start(static_cast<int>(backend->ends_.size())));
  const auto make_shard = [&](int lane) -> Status {
    const auto shard = static_cast<size_t>(lane);
    BackendOptions own = options;
    own.group = backend->ends_[shard].get();
    own.device = devices.empty() ? lane : devices[shard];
    RH_TRY(backend->shards_[shard], make(std::move(own)));
    return {};
  };
  RH_TRY_STATUS(backend->lanes_->run(make_shard));
  for (const auto& shard : backend->shards_) RH_TRY_STATUS(check_alike(backend->first(), *shard));
  return std::unique_ptr<Backend>(std::move(backend));
}

ShardedBackend::~ShardedBackend() {
  if (!lanes_) return;
  const Status ended = lanes_->run([&](int lane) -> Status {
    shards_[static_cast<size_t>(lane)].reset();
    return {};
  });
  static_cast<void>(ended);  // nothing in there fails
}

Result<Weight> ShardedBackend::add_weight(const WeightSource& source, WeightUse use) {
  std::vector<Weight> weights(shards_.size());
  const auto add = [&](int lane) -> Status {
    const auto shard = static_cast<size_t>(lane);
    RH_TRY(weights[shard], shards_[shard]->add_weight(source, use));
    return {};
  };
  RH_TRY_STATUS(lanes_->run(add));
  for (const Weight weight : weights) {
    if (weight.id != weights.front().id) {
      return make_error(ErrorKind::kInternal, "devices number tensor '{}' differently", source.name);
    }
  }
  return weights.front();
}

Result<std::span<const float>> ShardedBackend::run(const BatchInput& batch, int recipe) {
  mass_kept_ = false;
  for (const SequencePlan& sequence : batch.plan->sequences) {
    if (sequence.read_budget == 0) continue;
    return make_error(ErrorKind::kUnsupported, "sparse decode runs on one device: leave out --devices");
  }
  RH_TRY_STATUS(plans_.cut(*batch.plan));
  std::span<const float> result;
  const auto run_shard = [&](int lane) -> Status {
    BatchInput own;
    own.tokens = batch.tokens;
    own.plan = &plans_.share(lane);
    own.mass = batch.mass;
    if (lane > 0) {
      // What comes behind the last attention is the first shard's alone.
      RH_TRY_STATUS(shards_[static_cast<size_t>(lane)]->run(own, recipe));
      return {};
    }
    own.output_rows = batch.output_rows;
    own.targets = batch.targets;
    own.pools = batch.pools;
    own.top_logits_of = batch.top_logits_of;
    RH_TRY(result, shards_.front()->run(own, recipe));
    return {};
  };
  RH_TRY_STATUS(lanes_->run(run_shard));
  if (batch.mass) RH_TRY_STATUS(gather_mass(*batch.plan));
  mass_kept_ = batch.mass;
  return result;
}

Result<std::span<const float>> ShardedBackend::whole_rows(int first_output, int count) {
  std::span<const float> rows;
  const auto fetch = [&](int lane) -> Status {
    if (lane == 0) {
      RH_TRY(rows, shards_.front()->whole_rows(first_output, count));
    }
    return {};
  };
  RH_TRY_STATUS(lanes_->run(fetch));
  return rows;
}

Status ShardedBackend::gather_mass(const BatchPlan& plan) {
  mass_.resize(plan.sequences.size());
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const auto sequence = static_cast<int>(s);
    mass_[s].assign(plan.sequences[s].references.size() * kPageTokens, 0.0);
    for (int device = 0; device < plans_.devices(); ++device) {
      RH_TRY(const std::span<const double> own,
             shards_[static_cast<size_t>(device)]->mass_per_token(sequence));
      const std::span<const int32_t> origins = plans_.origins(device, sequence);
      for (size_t i = 0; i < origins.size(); ++i) {
        std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(i) * kPageTokens, kPageTokens,
                    mass_[s].begin() + std::ptrdiff_t{origins[i]} * kPageTokens);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_sharded_backend(BackendOptions options,
                                                      std::vector<std::unique_ptr<Collective>> ends,
                                                      const ShardMaker& make, std::vector<int> devices) {
  return ShardedBackend::make(options, std::move(ends), make, devices);
}

Result<std::unique_ptr<Backend>> make_sharded_cpu_backend(BackendOptions options, int shards) {
  options.threads = std::max(1, options.threads / shards);
  return make_sharded_backend(std::move(options), host_collective(shards), cpu::make_ggml_backend);
}

}  // namespace rhapsode::kernels
