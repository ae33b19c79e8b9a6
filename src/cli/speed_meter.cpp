#include "cli/speed_meter.h"

#include <algorithm>
#include <chrono>

namespace rhapsode::cli {
namespace {

constexpr int kWarmUpTokens = 512;
constexpr int kWarmUpSteps = 4;
constexpr int kRefillBelow = 1024;  // a short context is filled anew for each run, which costs little

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

std::optional<double> SpeedRow::ratio() const {
  if (!peer_tokens_per_s || *peer_tokens_per_s <= 0) return std::nullopt;
  return tokens_per_s / *peer_tokens_per_s;
}

SpeedHooks steady_hooks(std::function<void(const std::string&)> on_progress) {
  return {[] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          },
          std::move(on_progress)};
}

SpeedMeter::SpeedMeter(engine::LogitSource& ours, engine::LogitSource* peer, int vocabulary, SpeedHooks hooks)
    : ours_(ours), peer_(peer), vocabulary_(vocabulary), hooks_(std::move(hooks)) {}

int SpeedMeter::decode_growth(int steps, int runs) {
  return 1 + kWarmUpSteps + steps * runs;
}

std::span<const int32_t> SpeedMeter::some_tokens(int count) {
  while (tokens_.size() < static_cast<size_t>(count)) {
    // A linear congruential generator (Knuth's MMIX): the same tokens on every machine.
    const uint64_t state = (tokens_.size() + 1) * 6364136223846793005ull + 1442695040888963407ull;
    tokens_.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocabulary_)));
  }
  return std::span<const int32_t>(tokens_).first(static_cast<size_t>(count));
}

Result<SpeedRow> SpeedMeter::in_turns(const std::string& what, int tokens, int timed_tokens, int runs,
                                      const Measure& measure) {
  std::vector<double> ours, peers;
  for (int run = 0; run < runs; ++run) {
    hooks_.on_progress(fmt::format("{}: run {} of {}", what, run + 1, runs));
    RH_TRY(const double seconds, measure(ours_));
    ours.push_back(seconds);
    if (!peer_) continue;
    hooks_.on_progress(fmt::format("{}: run {} of {}, libllama", what, run + 1, runs));
    RH_TRY(const double peer_seconds, measure(*peer_));
    peers.push_back(peer_seconds);
  }
  SpeedRow row{tokens, timed_tokens / median(ours), std::nullopt};
  if (peer_) row.peer_tokens_per_s = timed_tokens / median(peers);
  return row;
}

Result<SpeedRow> SpeedMeter::prefill(int tokens, int runs) {
  const std::string what = fmt::format("prefill {}", tokens);
  held_ = -1;
  const auto prompt = some_tokens(tokens);
  hooks_.on_progress(what + ": warm-up");
  for (engine::LogitSource* source : {&ours_, peer_}) {
    if (!source) continue;
    source->reset();
    RH_TRY_STATUS(
        source->evaluate(prompt.first(std::min(prompt.size(), static_cast<size_t>(kWarmUpTokens)))));
  }
  RH_TRY(const SpeedRow row,
         in_turns(what, tokens, tokens, runs, [&](engine::LogitSource& source) -> Result<double> {
           source.reset();
           const double start = hooks_.seconds();
           RH_TRY_STATUS(source.evaluate(prompt));
           return hooks_.seconds() - start;
         }));
  held_ = tokens;
  return row;
}

Result<SpeedRow> SpeedMeter::decode(int context, int steps, int runs) {
  const std::string what = fmt::format("decode at {}", context);
  // An empty context has nothing to predict from: one token starts it.
  const size_t start = static_cast<size_t>(std::max(context, 1));
  const auto prompt = some_tokens(static_cast<int>(start) + steps).first(start);
  const auto step_tokens = some_tokens(static_cast<int>(start) + steps).subspan(start);
  const bool filled = held_ == context && context > 0;
  held_ = -1;
  hooks_.on_progress(what + (filled ? ": warm-up" : ": filling the context"));
  for (engine::LogitSource* source : {&ours_, peer_}) {
    if (!source) continue;
    if (!filled) {
      source->reset();
      RH_TRY_STATUS(source->evaluate(prompt));
    }
    for (int i = 0; i < kWarmUpSteps; ++i) RH_TRY_STATUS(source->evaluate(prompt.first(1)));
  }
  return in_turns(what, context, steps, runs, [&](engine::LogitSource& source) -> Result<double> {
    if (context < kRefillBelow) {
      source.reset();
      RH_TRY_STATUS(source.evaluate(prompt));
    }
    const double begin = hooks_.seconds();
    for (size_t i = 0; i < step_tokens.size(); ++i) RH_TRY_STATUS(source.evaluate(step_tokens.subspan(i, 1)));
    return hooks_.seconds() - begin;
  });
}

}  // namespace rhapsode::cli
