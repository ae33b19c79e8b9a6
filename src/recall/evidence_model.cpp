#include "recall/evidence_model.h"

#include <cmath>
#include <cstring>

#include "model/gguf_file.h"

namespace rhapsode::recall {

namespace {

constexpr std::string_view kArchitecture = "rhapsode-evidence";
constexpr int kTypeF32 = 0;  // ggml_type

Result<EvidenceRow> weights(const model::GgufFile& file, std::string_view name) {
  EvidenceRow row;
  const model::GgufTensor* tensor = file.tensor(name);
  bool sound = tensor && tensor->type == kTypeF32 && tensor->dims == 1 && tensor->data.size() == sizeof row;
  if (sound) std::memcpy(row.data(), tensor->data.data(), sizeof row);
  for (size_t i = 0; sound && i < row.size(); ++i) sound = std::isfinite(row[i]);
  if (sound) return row;
  return make_error(ErrorKind::kCorrupt, "{}: '{}' is not {} finite float32 weights: train it again",
                    file.path().string(), name, kEvidenceFeatureCount);
}

}  // namespace

Result<EvidenceModel> EvidenceModel::load(const std::filesystem::path& path) {
  RH_TRY(const model::GgufFile file, model::GgufFile::open(path));
  if (file.text("general.architecture") != kArchitecture) {
    return make_error(ErrorKind::kUnsupported, "{} is a GGUF file, but no evidence ranker", path.string());
  }
  const model::GgufArray* names = file.array("evidence.features");
  bool same = names && names->size() == kEvidenceFeatureCount;
  for (size_t i = 0; same && i < kEvidenceFeatureCount; ++i) same = names->text(i) == kEvidenceFeatures[i];
  if (!same) {
    return make_error(ErrorKind::kUnsupported,
                      "{} was trained on other features than this build knows: train it again",
                      path.string());
  }
  EvidenceModel made;
  RH_TRY(made.found, weights(file, "evidence.found"));
  RH_TRY(made.judged, weights(file, "evidence.judged"));
  return made;
}

double evidence_score(const EvidenceRow& weights, const EvidenceRow& row) {
  double sum = 0;
  for (size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(row[i]) * weights[i];
  return sum;
}

}  // namespace rhapsode::recall
