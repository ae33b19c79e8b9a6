#include "engine/routing_file.h"

#include "model/catalogue.h"
#include "model/weights.h"

namespace rhapsode::engine {

namespace {

namespace fs = std::filesystem;

// Beside an installed program, and in the source tree of one that was just built.
std::vector<fs::path> shipped_folders() {
  std::vector<fs::path> folders;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path().parent_path() / "share" / "rhapsode" / "routing");
  folders.emplace_back(RHAPSODE_ROUTING_FOLDER);
  return folders;
}

Result<index::Whitening> load_for(const fs::path& path, const model::Architecture& architecture) {
  RH_TRY(index::Whitening whitening, index::Whitening::load(path));
  if (whitening.dimensions() != architecture.embedding ||
      whitening.layer() != model::state_layer(architecture)) {
    return make_error(
        ErrorKind::kCorrupt,
        "{} is made for states of {} numbers before block {}; this model has {} before block {}",
        path.string(), whitening.dimensions(), whitening.layer(), architecture.embedding,
        model::state_layer(architecture));
  }
  return whitening;
}

}  // namespace

Result<index::Whitening> find_whitening(const fs::path& given, const std::string& model_sha256,
                                        const model::Architecture& architecture, const fs::path& home) {
  if (!given.empty()) return load_for(given, architecture);
  const fs::path own = home / "routing" / (model_sha256 + ".rhw");
  std::error_code error;
  if (fs::exists(own, error)) return load_for(own, architecture);
  RH_TRY(const model::Catalogue catalogue, model::Catalogue::load(home));
  for (const model::CatalogueEntry& entry : catalogue.entries()) {
    if (entry.sha256 != model_sha256) continue;
    for (const fs::path& folder : shipped_folders()) {
      const fs::path path = folder / (entry.name + ".rhw");
      if (fs::exists(path, error)) return load_for(path, architecture);
    }
  }
  return make_error(
      ErrorKind::kNotFound,
      "there is no routing file for this model ({}): make one with 'rhapsode routing', or give one "
      "with --routing",
      architecture.title);
}

Result<std::optional<recall::EvidenceModel>> find_evidence_model(const fs::path& given,
                                                                 const fs::path& home) {
  constexpr const char* kName = "evidence.gguf";
  std::vector<fs::path> places = {home / "routing" / kName};
  for (const fs::path& folder : shipped_folders()) places.push_back(folder / kName);
  if (!given.empty()) places = {given};
  for (const fs::path& place : places) {
    std::error_code error;
    if (given.empty() && !fs::exists(place, error)) continue;
    RH_TRY(recall::EvidenceModel model, recall::EvidenceModel::load(place));
    return std::optional(std::move(model));
  }
  return std::optional<recall::EvidenceModel>();
}

}  // namespace rhapsode::engine
