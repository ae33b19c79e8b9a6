#include "engine/verdict.h"

#include <fmt/format.h>

#include "base/system.h"
#include "model/catalogue.h"

namespace rhapsode::engine {

PolicyChoice choose_policy(ReadPolicy asked, const EngineOptions& options, const std::string& model_sha256,
                           int mean_tokens) {
  if (asked != ReadPolicy::kAuto) return {asked, "asked for"};
  if (!options.adapters.empty()) {
    return {ReadPolicy::kPrefix, "reuse has not been measured with an adapter"};
  }
  const auto home = options.cache_folder.empty() ? home_folder() : options.cache_folder;
  const auto catalogue = model::Catalogue::load(home);
  if (!catalogue.ok()) return {ReadPolicy::kPrefix, catalogue.error().message};
  for (const model::CatalogueEntry& entry : catalogue->entries()) {
    if (entry.sha256 != model_sha256 || !entry.reuse) continue;
    const model::ReuseVerdict& reuse = *entry.reuse;
    const std::string numbers =
        fmt::format("KL {:.2f} and F1 {:+.3f} +-{:.3f} against full attention on {} questions", reuse.kl,
                    -reuse.f1_loss, reuse.f1_half_width, reuse.questions);
    if (reuse.allowed && mean_tokens < reuse.least_tokens) {
      return {ReadPolicy::kPrefix,
              fmt::format("the passages are short ({} tokens on average; reuse is measured good from {} on)",
                          mean_tokens, reuse.least_tokens)};
    }
    return {reuse.allowed ? ReadPolicy::kReuse : ReadPolicy::kPrefix, "measured: " + numbers};
  }
  return {ReadPolicy::kPrefix, "reuse has not been measured with this model; --policy reuse uses it anyway"};
}

}  // namespace rhapsode::engine
