// Which reading policy serves a model: the gate of design section 5.
//
// Approximate policies need a verdict: numbers measured against full attention. Models of the catalogue ship
// with theirs; any other model reads with `prefix` (exact) and the reason says why. What the user asks for by
// name is done. Threads: any.
#pragma once

#include <string>

#include "rhapsode/memory_options.h"
#include "rhapsode/options.h"

namespace rhapsode::engine {

struct PolicyChoice {
  ReadPolicy policy = ReadPolicy::kPrefix;  // never kAuto
  std::string reason;
};

// `mean_tokens`: of the passages to be read; short ones diverge more from full attention than long ones.
PolicyChoice choose_policy(ReadPolicy asked, const EngineOptions& options, const std::string& model_sha256,
                           int mean_tokens);

}  // namespace rhapsode::engine
