#include "engine/weight_choice.h"

#include "model/weight_copy.h"

namespace rhapsode::engine {

Result<WeightChoice> choose_weights(const EngineOptions& options) {
  if (options.weights == WeightFormat::kShipped) return WeightChoice{options.model, {}};
  model::WeightCopyOptions copy_options;
  copy_options.home = options.cache_folder;
  copy_options.cap_bytes = options.weight_cache_cap_bytes;
  copy_options.threads = options.threads;
  RH_TRY(const model::WeightCopy copy,
         model::weight_copy(options.model, model::CopyType::kBF16, copy_options));
  if (options.weights == WeightFormat::kMixed) return WeightChoice{options.model, copy.path};
  return WeightChoice{copy.path, {}};
}

}  // namespace rhapsode::engine
