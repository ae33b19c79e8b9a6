#include "engine/runner_options.h"

#include "base/system.h"
#include "model/weight_copy.h"

namespace rhapsode::engine {

namespace {

kernels::BoundKind bound_of(KeyBounds bounds) {
  switch (bounds) {
    case KeyBounds::kMean:
      return kernels::BoundKind::kMean;
    case KeyBounds::kBox:
      return kernels::BoundKind::kBox;
    case KeyBounds::kBall:
      return kernels::BoundKind::kBall;
  }
  return kernels::BoundKind::kMean;
}

// The shipped file, its BF16 copy in the cache folder, or both.
Status choose_weights(const EngineOptions& options, RunnerOptions& runner) {
  runner.model = runner.vocabulary = options.model;
  if (options.weights == WeightFormat::kShipped) return {};
  model::WeightCopyOptions copy_options;
  copy_options.home = options.cache_folder;
  copy_options.cap_bytes = options.weight_cache_cap_bytes;
  copy_options.threads = options.threads;
  RH_TRY(const model::WeightCopy copy,
         model::weight_copy(options.model, model::CopyType::kBF16, copy_options));
  (options.weights == WeightFormat::kMixed ? runner.wide_model : runner.model) = copy.path;
  return {};
}

// Key bounds are kept and searched by the CPU only; several devices are GPUs unless it is said that they are
// not.
Result<Device> device_of(const EngineOptions& options) {
  if (options.devices > 1) {
    const bool sparse = options.sparse_decode.budget_tokens > 0;
    if (sparse || options.deterministic) {
      return make_error(ErrorKind::kUnsupported, "{} on one device: leave out --devices, or {}",
                        sparse ? "sparse decode runs" : "deterministic passes run",
                        sparse ? "use --decode-budget 0" : "--deterministic");
    }
    return options.device == Device::kAuto ? Device::kCuda : options.device;
  }
  if (options.sparse_decode.budget_tokens == 0) return Device(options.device);
  if (options.device == Device::kCuda) {
    return make_error(ErrorKind::kUnsupported,
                      "sparse decode runs on the CPU only: use --device cpu, or --decode-budget 0");
  }
  return Device::kCpu;
}

}  // namespace

const char* storage_name(kernels::KvType type) {
  return type == kernels::KvType::kI8 ? "i8" : to_string(type);
}

kernels::KvType kv_type_of(KvStorage storage) {
  switch (storage) {
    case KvStorage::kF32:
      return kernels::KvType::kF32;
    case KvStorage::kF16:
      return kernels::KvType::kF16;
    case KvStorage::kBF16:
      return kernels::KvType::kBF16;
    case KvStorage::kI8:
      return kernels::KvType::kI8;
  }
  return kernels::KvType::kF16;
}

kernels::SparseOptions sparse_of(const SparseDecodeOptions& options) {
  using kernels::SelectionScope;
  kernels::SparseOptions sparse;
  sparse.bounds.kind = bound_of(options.bounds);
  sparse.bounds.group_slots = options.group_tokens;
  sparse.scope = options.per_layer ? SelectionScope::kLayer : SelectionScope::kKvHead;
  return sparse;
}

Result<RunnerOptions> runner_options(const EngineOptions& options) {
  RunnerOptions runner;
  RH_TRY_STATUS(choose_weights(options, runner));
  for (const AdapterOptions& adapter : options.adapters) {
    runner.adapters.push_back({adapter.path, adapter.scale});
  }
  runner.kv_type = kv_type_of(options.kv_type);
  RH_TRY(runner.device, device_of(options));
  runner.devices = options.devices;
  runner.threads = options.threads > 0 ? options.threads : usable_cores();
  runner.sparse = sparse_of(options.sparse_decode);
  runner.deterministic = options.deterministic;
  return runner;
}

}  // namespace rhapsode::engine
