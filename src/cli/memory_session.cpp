#include "cli/memory_session.h"

#include <algorithm>
#include <optional>
#include <set>

#include "cli/suggest.h"
#include "cli/text_width.h"
#include "model/pull.h"

namespace rhapsode::cli {
namespace {

namespace fs = std::filesystem;

Error no_memory(const MemoryPlace& place) {
  const std::string hint = place.why.empty() ? "" : ", --memory FOLDER names another";
  return make_error(ErrorKind::kNotFound, "there is no memory at {}; `rhapsode add PATH...` makes one{}",
                    place.folder.string(), hint);
}

// The identity of what lies there, nullopt where nothing does and one may be made.
Result<std::optional<MemoryIdentity>> identify(const MemoryPlace& place, MemoryUse use) {
  auto identity = identify_memory(place.folder);
  // A memory without a model is one whose making did not get far.
  const bool unfinished = identity.ok() && identity->model_path.empty();
  if (identity.ok() && !unfinished) return std::optional(std::move(identity).value());
  if (!unfinished && identity.error().kind != ErrorKind::kNotFound) return identity.error();
  if (use == MemoryUse::kMake) return std::optional<MemoryIdentity>();
  return no_memory(place);
}

Result<fs::path> model_of(const Invocation& invocation, const std::optional<MemoryIdentity>& identity) {
  const bool chosen = invocation.sources.flags.contains(find_option("model"));
  if (chosen || !identity) return model::resolve_model(invocation.settings.model);
  std::error_code ignored;
  if (fs::exists(identity->model_path, ignored)) return identity->model_path;
  // A memory that came from elsewhere: its model may be here under the same name.
  const auto here = model::resolve_model(identity->model_path.stem().string());
  if (here.ok()) return *here;
  return make_error(ErrorKind::kNotFound,
                    "the memory at {} was made with {}, which is not at {} any more; "
                    "--model FILE says where it is now",
                    identity->folder.string(), identity->model_name, identity->model_path.string());
}

std::vector<std::string> names_of(const std::vector<SourceInfo>& sources) {
  std::vector<std::string> names;
  for (const SourceInfo& source : sources) names.push_back(source.source);
  return names;
}

std::string last_part(const std::string& name) {
  return name.substr(name.find_last_of('/') + 1);
}

}  // namespace

std::string nearest_source(const std::string& given, const std::vector<std::string>& sources) {
  if (given.empty()) return "";
  const std::string ending = "/" + given;
  for (const std::string& source : sources) {
    if (source.ends_with(ending)) return source;
  }
  if (const std::string alike = nearest(given, sources); !alike.empty()) return alike;
  std::vector<std::string> last_parts;
  for (const std::string& source : sources) last_parts.push_back(last_part(source));
  const std::string part = nearest(last_part(given), last_parts);
  if (part.empty()) return "";
  return sources[static_cast<size_t>(std::find(last_parts.begin(), last_parts.end(), part) -
                                     last_parts.begin())];
}

Error explain_unknown(Memory& memory, const std::string& source, const SourceFilter& filter,
                      const Error& error) {
  SourceFilter everything = filter;
  everything.sources.clear();
  everything.tags.clear();
  const auto all = memory.list(everything);
  if (error.kind != ErrorKind::kNotFound || !all.ok()) return error;
  const std::string meant = nearest_source(source, names_of(*all));
  return make_error(ErrorKind::kNotFound, "the memory holds no source '{}'; {}", source,
                    meant.empty() ? std::string("`rhapsode list` shows what it holds")
                                  : fmt::format("did you mean '{}'?", meant));
}

Status check_filter(Memory& memory, const SourceFilter& filter) {
  for (const std::string& source : filter.sources) {
    SourceFilter one = filter;
    one.sources = {source};
    one.tags.clear();
    RH_TRY(const auto found, memory.list(one));
    if (found.empty()) return explain_unknown(memory, source, filter, {ErrorKind::kNotFound, ""});
  }
  if (filter.tags.empty()) return {};
  SourceFilter untagged = filter;
  untagged.sources.clear();
  untagged.tags.clear();
  RH_TRY(const auto all, memory.list(untagged));
  std::set<std::string> known;
  for (const SourceInfo& source : all) known.insert(source.tags.begin(), source.tags.end());
  for (const std::string& tag : filter.tags) {
    if (known.contains(tag)) continue;
    const std::vector<std::string> tags(known.begin(), known.end());
    return make_error(ErrorKind::kNotFound, "no source of the memory has the tag '{}'{}", tag,
                      did_you_mean(tag, tags));
  }
  return {};
}

Result<MemorySession> open_session(Invocation& invocation, const MemoryPlace& place, MemoryUse use) {
  Terminal& terminal = invocation.terminal;
  RH_TRY(const auto identity, identify(place, use));
  MemoryOptions options = invocation.settings.memory.options;
  options.folder = place.folder;
  if (use == MemoryUse::kCatalog) {
    MemorySession session{place, false, nullptr, nullptr};
    RH_TRY(session.memory, Memory::look(options));
    return session;
  }
  EngineOptions engine_options = invocation.settings.engine;
  RH_TRY(engine_options.model, model_of(invocation, identity));

  MemorySession session{place, !identity, nullptr, nullptr};
  terminal.show_status(fmt::format("Loading {} …", printable(engine_options.model.stem().string())));
  RH_TRY(session.engine, Engine::open(engine_options));
  options.create = use == MemoryUse::kMake;
  options.read_only = use == MemoryUse::kLook && !options.reencode;
  RH_TRY(session.memory, Memory::open(*session.engine, options));
  terminal.clear_status();
  return session;
}

Result<MemorySession> open_session(Invocation& invocation, MemoryUse use) {
  return open_session(invocation, find_memory(invocation.settings.memory.options.folder, process_places()),
                      use);
}

}  // namespace rhapsode::cli
