// Writes evidence rankers with given weights, sound or damaged on purpose.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "recall/evidence_model.h"
#include "support/gguf_writer.h"

namespace rhapsode::test {

inline GgufWriter evidence_file(const recall::EvidenceModel& model) {
  GgufWriter writer;
  writer.string("general.architecture", "rhapsode-evidence");
  writer.strings("evidence.features", {recall::kEvidenceFeatures.begin(), recall::kEvidenceFeatures.end()});
  const auto add = [&](const char* name, const recall::EvidenceRow& row) {
    const auto* bytes = reinterpret_cast<const char*>(row.data());
    writer.tensors.push_back(
        {name, {static_cast<int64_t>(row.size())}, 0, sizeof row, -1, std::string(bytes, sizeof row)});
  };
  add("evidence.found", model.found);
  add("evidence.judged", model.judged);
  return writer;
}

// Weighs one feature, nothing else.
inline recall::EvidenceModel weighs_only(size_t feature, float weight = 1) {
  recall::EvidenceModel model;
  model.found[feature] = model.judged[feature] = weight;
  return model;
}

}  // namespace rhapsode::test
