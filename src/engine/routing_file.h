// Where a model's whitening lies: the routing side file shipped for it, or one in the home folder.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "index/whitening.h"
#include "model/architecture.h"

namespace rhapsode::engine {

// `model_sha256` names the file: HOME/routing/<sha256>.rhw, then the catalogue's entry in the shipped
// folders. kNotFound says how one is made. A file whose sizes do not fit the model is kCorrupt.
Result<index::Whitening> find_whitening(const std::filesystem::path& given, const std::string& model_sha256,
                                        const model::Architecture& architecture,
                                        const std::filesystem::path& home);

}  // namespace rhapsode::engine
