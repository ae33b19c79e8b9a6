#include "engine/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system.h"
#include "model/catalogue.h"

namespace rhapsode::engine {

namespace {

std::string name_of(const model::MeasuredReading& reading) {
  if (reading.policy != to_string(ReadPolicy::kBlend)) return reading.policy;
  return fmt::format("blend of {:.0f} % by {}", 100 * reading.share, reading.selector);
}

std::string numbers_of(const model::MeasuredReading& reading) {
  return fmt::format("KL {:.2f} and F1 {:+.3f} +-{:.3f} against full attention on {} questions", reading.kl,
                     -reading.f1_loss, reading.f1_half_width, reading.questions);
}

bool holds_for(const model::MeasuredReading& reading, const ReadingWanted& wanted) {
  return reading.stored == wanted.stored && wanted.mean_tokens >= reading.least_tokens &&
         (reading.most_tokens == 0 || wanted.mean_tokens <= reading.most_tokens);
}

PolicyChoice choice_of(const model::MeasuredReading& reading) {
  PolicyChoice choice;
  choice.policy = ReadPolicy::kReuse;
  if (reading.policy == to_string(ReadPolicy::kBlend)) {
    choice.policy = ReadPolicy::kBlend;
    for (const BlendSelector selector : kBlendSelectors) {
      if (reading.selector == to_string(selector)) choice.blend.selector = selector;
    }
    choice.blend.share = reading.share;
  }
  choice.reason = "measured: " + numbers_of(reading);
  return choice;
}

}  // namespace

PolicyChoice choose_reading(std::span<const model::MeasuredReading> readings, const ReadingWanted& wanted) {
  const model::MeasuredReading* best = nullptr;
  const model::MeasuredReading* closest = nullptr;
  for (const model::MeasuredReading& reading : readings) {
    if (!holds_for(reading, wanted)) continue;
    if (!closest || reading.kl < closest->kl) closest = &reading;
    const bool within = reading.kl <= wanted.max_kl && reading.f1_loss <= wanted.max_f1_loss;
    if (within && (!best || reading.charged < best->charged)) best = &reading;
  }
  if (best) return choice_of(*best);
  if (closest) {
    return {ReadPolicy::kPrefix,
            {},
            fmt::format("nothing measured is within KL {:g} and an F1 loss of {:g}; the closest, {}, has {}",
                        wanted.max_kl, wanted.max_f1_loss, name_of(*closest), numbers_of(*closest))};
  }
  return {
      ReadPolicy::kPrefix,
      {},
      fmt::format("nothing was measured for passages of {} tokens with KV stored as {}: rhapsode calibrate "
                  "does",
                  wanted.mean_tokens, wanted.stored)};
}

FoundVerdict find_verdict(const EngineOptions& options, const std::string& model_sha256) {
  if (!options.adapters.empty()) return {{}, "reading stored KV has not been measured with an adapter"};
  const auto home = options.cache_folder.empty() ? home_folder() : options.cache_folder;
  auto own = model::load_verdict(model::verdict_path(home, model_sha256));
  if (own.ok() && own->model_sha256 == model_sha256) return {std::move(own->readings), ""};
  if (!own.ok() && own.error().kind != ErrorKind::kNotFound) return {{}, own.error().message};
  const auto catalogue = model::Catalogue::load(home);
  if (!catalogue.ok()) return {{}, catalogue.error().message};
  for (const model::CatalogueEntry& entry : catalogue->entries()) {
    if (entry.sha256 == model_sha256 && !entry.readings.empty()) return {entry.readings, ""};
  }
  return {{},
          "reading stored KV has not been measured with this model: rhapsode calibrate does; --policy reuse "
          "reads "
          "it anyway"};
}

}  // namespace rhapsode::engine
