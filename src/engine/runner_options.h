// From what a caller chose for an engine to what a ModelRunner needs: which weight files, how keys and values
// are kept.
#pragma once

#include "base/result.h"
#include "engine/model_runner.h"
#include "rhapsode/options.h"

namespace rhapsode::engine {

kernels::KvType kv_type_of(KvStorage storage);
// As flags, verdicts and reports call it: "f16", "i8".
const char* storage_name(kernels::KvType type);
kernels::SparseOptions sparse_of(const SparseDecodeOptions& options);

// Makes the BF16 copy when options.weights ask for it and it is absent (seconds); copies stay under
// options.weight_cache_cap_bytes.
Result<RunnerOptions> runner_options(const EngineOptions& options);

}  // namespace rhapsode::engine
