// Where the side files of routing lie: a model's whitening and the evidence ranker, shipped or in the home
// folder.
#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "index/whitening.h"
#include "model/architecture.h"
#include "recall/evidence_model.h"

namespace rhapsode::engine {

// `model_sha256` names the file: HOME/routing/<sha256>.rhw, then the catalogue's entry in the shipped
// folders. kNotFound says how one is made. A file whose sizes do not fit the model is kCorrupt.
Result<index::Whitening> find_whitening(const std::filesystem::path& given, const std::string& model_sha256,
                                        const model::Architecture& architecture,
                                        const std::filesystem::path& home);

// The evidence ranker: the one given, HOME/routing/evidence.gguf, or the one shipped; none when there is no
// such file.
Result<std::optional<recall::EvidenceModel>> find_evidence_model(const std::filesystem::path& given,
                                                                 const std::filesystem::path& home);

}  // namespace rhapsode::engine
