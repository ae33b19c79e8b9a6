// Memory::make_routing: the routing file of a model.
#include <algorithm>

#include "base/clock.h"
#include "base/system.h"
#include "engine/memory_impl.h"
#include "io/file.h"
#include "model/file_hash.h"
#include "recall/routing_maker.h"

namespace rhapsode {

namespace {

Result<std::vector<std::string>> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  if (path.empty()) return lines;
  RH_TRY(const std::string text, read_text_file(path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

Result<RoutingReport> Memory::make_routing(Engine& engine, const RoutingOptions& options) {
  const int64_t begin = now_ns();
  Engine::Impl& parts = *engine.impl_;
  engine::EnginePasses passes(*parts.runner, *parts.scheduler);
  RH_TRY(const recall::PromptFrame frame, make_frame(*parts.runner, built_in_instruction()));
  recall::Encoder encoder(passes, frame);
  recall::RoutingSample sample;
  sample.paths = options.paths;
  RH_TRY(sample.questions, lines_of(options.questions));
  sample.most_chunks = options.most_chunks;
  sample.on_progress = options.on_progress;
  RH_TRY(const recall::MadeWhitening made, recall::make_whitening(passes, encoder, frame, sample));
  std::filesystem::path output = options.output;
  if (output.empty()) {
    const auto home = parts.options.cache_folder.empty() ? home_folder() : parts.options.cache_folder;
    RH_TRY(const std::string hash, model::known_hash(parts.options.model, home));
    output = home / "routing" / (hash + ".rhw");
    RH_TRY_STATUS(make_directories(output.parent_path()));
  }
  RH_TRY_STATUS(made.whitening.save(output));
  return RoutingReport{output.string(), made.whitening.id(), made.chunks, ms_between(begin, now_ns()) / 1e3};
}

}  // namespace rhapsode
