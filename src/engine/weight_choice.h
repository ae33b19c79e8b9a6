// Which files the weights are read from: the shipped one, its BF16 copy in the cache folder, or both.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "rhapsode/options.h"

namespace rhapsode::engine {

struct WeightChoice {
  std::filesystem::path model;
  std::filesystem::path wide_model;  // for passes of many rows; empty: the same
};

// Makes the copy when it is asked for and absent (seconds); the cache stays under
// options.weight_cache_cap_bytes.
Result<WeightChoice> choose_weights(const EngineOptions& options);

}  // namespace rhapsode::engine
