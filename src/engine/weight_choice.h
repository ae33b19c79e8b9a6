// Which file the weights are read from: the shipped one, or its BF16 copy in the cache folder.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "rhapsode/options.h"

namespace rhapsode::engine {

// Makes the copy when it is asked for and absent (seconds); the cache stays under options.weight_cache_cap_bytes.
Result<std::filesystem::path> choose_weights(const EngineOptions& options);

}  // namespace rhapsode::engine
