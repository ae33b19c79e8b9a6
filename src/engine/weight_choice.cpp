#include "engine/weight_choice.h"

namespace rhapsode::engine {

Result<std::filesystem::path> choose_weights(const EngineOptions& options) {
  if (options.weights == WeightFormat::kShipped) return options.model;
  return make_error(ErrorKind::kUnsupported, "BF16 weight copies are not built in yet");
}

}  // namespace rhapsode::engine
