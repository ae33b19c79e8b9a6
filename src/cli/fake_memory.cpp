// A Memory for tests of the program: keeps texts in one JSON file and answers with the sentence that shares
// most words with the question, so that every command is tested without a model and in milliseconds.
//
// Linked in place of the engine's. A token is four bytes, a passage a blank-line paragraph; files ending in
// .bin are skipped, those ending in .bad fail, and a text that holds DAMAGED is a problem to verify().
// RHAPSODE_FAKE_DELAY_MS is the time that a word of an answer, or a source that is added, takes;
// RHAPSODE_FAKE_PLAN_S the time that plans promise.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/result.h"
#include "rhapsode/memory.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFile = "fake.json";
constexpr const char* kTime = "2026-03-01T12:00:00Z";

double number_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atof(text) : 0;
}

void pause() {
  std::this_thread::sleep_for(
      std::chrono::milliseconds(static_cast<int>(number_from("RHAPSODE_FAKE_DELAY_MS"))));
}

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string standard_input() {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = ::read(0, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(bytes));
  }
  return text;
}

// As the user would write it: no "./" before, no "/" behind.
std::string source_name(const std::string& path) {
  std::string name = fs::path(path).lexically_normal().string();
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  return name;
}

bool is_at_or_below(const std::string& source, const std::string& name) {
  const std::string clean = source_name(name);
  return clean == "." || source == clean || source.starts_with(clean + "/");
}

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      if (word.size() > 3) words.insert(word);
      word.clear();
    }
  }
  return words;
}

int shared_words(const std::string& a, const std::string& b) {
  const auto left = words_of(a), right = words_of(b);
  return static_cast<int>(
      std::count_if(left.begin(), left.end(), [&](const auto& word) { return right.contains(word); }));
}

struct Span {
  size_t begin, end;
};

// Pieces that end behind `mark`.
std::vector<Span> pieces(const std::string& text, const std::string& mark) {
  std::vector<Span> spans;
  for (size_t begin = 0; begin < text.size();) {
    const size_t found = text.find(mark, begin);
    const size_t end = found == std::string::npos ? text.size() : found + mark.size();
    spans.push_back({begin, end});
    begin = end;
  }
  return spans;
}

}  // namespace

struct Memory::Impl {
  fs::path folder;
  Json json;  // {model_name, model_path, sources: {name: {text, versions, tags, event_time, index_only}}}

  Json& sources() { return json["sources"]; }
  void save() const { std::ofstream(folder / kFile) << json.dump(1); }

  struct Found {
    std::string name;
    std::string bytes;
  };

  // What add() would read; `report` tells what it would not.
  Result<std::vector<Found>> scan(const AddOptions& options, AddReport& report) const {
    std::vector<Found> found;
    for (const std::string& path : options.paths) {
      if (path == "-") {
        found.push_back({options.standard_input_name, standard_input()});
      } else if (fs::is_directory(path)) {
        std::set<std::string> files;
        for (const auto& entry : fs::recursive_directory_iterator(path)) {
          if (entry.is_regular_file() && entry.path().string().find("/.") == std::string::npos)
            files.insert(entry.path().string());
        }
        for (const std::string& file : files) take(file, found, report);
      } else if (fs::exists(path)) {
        take(path, found, report);
      } else {
        return make_error(ErrorKind::kNotFound, "{} does not exist", path);
      }
    }
    return found;
  }

  static void take(const std::string& file, std::vector<Found>& found, AddReport& report) {
    const std::string name = source_name(file);
    if (name.ends_with(".bin")) {
      report.skipped.push_back({name, "binary"});
    } else if (name.ends_with(".bad")) {
      report.failed.push_back({name, "damaged: the table of pages is cut off"});
    } else if (fs::file_size(file) == 0) {
      report.skipped.push_back({name, "no text"});
    } else {
      found.push_back({name, contents(file)});
    }
  }

  std::vector<std::string> vanished(const AddOptions& options) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources().items()) {
      for (const std::string& path : options.paths) {
        if (fs::is_directory(path) && is_at_or_below(name, path) && !fs::exists(name)) names.push_back(name);
      }
    }
    return names;
  }

  bool selected(const std::string& name, const Json& source, const SourceFilter& filter) const {
    const bool named = filter.sources.empty() ||
                       std::any_of(filter.sources.begin(), filter.sources.end(),
                                   [&](const std::string& wanted) { return is_at_or_below(name, wanted); });
    const Json& tags = source["tags"];
    return named && std::all_of(filter.tags.begin(), filter.tags.end(), [&](const std::string& tag) {
             return std::find(tags.begin(), tags.end(), tag) != tags.end();
           });
  }

  std::vector<FoundPassage> passages(const SourceFilter& filter) {
    std::vector<FoundPassage> all;
    int64_t id = 0;
    for (const auto& [name, source] : sources().items()) {
      const std::string text = source["text"];
      for (const Span& span : pieces(text, "\n\n")) {
        ++id;
        if (!selected(name, source, filter)) continue;
        FoundPassage found;
        found.text = text.substr(span.begin, span.end - span.begin);
        found.passage.id = id;
        found.passage.source = name;
        found.passage.version = source["versions"].get<int>();
        found.passage.start_byte = span.begin;
        found.passage.end_byte = span.end;
        found.passage.line =
            1 + static_cast<int>(
                    std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(span.begin), '\n'));
        found.passage.page = name.ends_with(".pdf") ? 3 : 0;
        found.passage.tokens = static_cast<int>(found.text.size() / 4);
        found.passage.header = name;
        found.passage.tier = source["index_only"].get<bool>() ? KvTier::kText : KvTier::kDisk;
        all.push_back(std::move(found));
      }
    }
    return all;
  }

  SourceInfo info(const std::string& name) {
    const Json& source = sources()[name];
    SourceInfo info;
    info.source = name;
    info.kind = name.ends_with(".md") ? "markdown" : "text";
    info.tags = source["tags"].get<std::vector<std::string>>();
    info.version = info.versions = source["versions"].get<int>();
    const std::string text = source["text"];
    info.bytes = text.size();
    info.tokens = text.size() / 4;
    info.passages = static_cast<int>(pieces(text, "\n\n").size());
    info.added = kTime;
    info.event_time = source["event_time"];
    return info;
  }
};

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Memory::~Memory() = default;

const fs::path& Memory::folder() const {
  return impl_->folder;
}

Result<MemoryIdentity> identify_memory(const fs::path& folder) {
  if (!fs::exists(folder / kFile)) {
    return make_error(ErrorKind::kNotFound, "{} holds no memory", folder.string());
  }
  const Json json = Json::parse(contents(folder / kFile), nullptr, false);
  if (json.is_discarded()) return make_error(ErrorKind::kCorrupt, "{} is damaged", (folder / kFile).string());
  return MemoryIdentity{folder, json["model_name"], json["model_path"].get<std::string>(), "f1e2d3"};
}

Result<std::unique_ptr<Memory>> Memory::open(Engine& engine, const MemoryOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->folder = options.folder;
  const std::string model = engine.model().name;
  if (const auto identity = identify_memory(options.folder); identity.ok()) {
    impl->json = Json::parse(contents(options.folder / kFile));
    if (identity->model_name != model && !options.reencode) {
      return make_error(
          ErrorKind::kInvalidArgument,
          "the memory at {} was made with {}; reading its 1,000 tokens again with {} takes about "
          "2 s: pass --reencode",
          options.folder.string(), identity->model_name, model);
    }
  } else if (!options.create) {
    return identity.error();
  } else {
    fs::create_directories(options.folder);
    impl->json = {{"sources", Json::object()}};
  }
  impl->json["model_name"] = model;
  if (options.create || options.reencode) {
    if (impl->json.value("model_path", "").empty() || options.reencode) {
      const char* home = std::getenv("RHAPSODE_HOME");
      impl->json["model_path"] = (fs::path(home ? home : "") / "models" / (model + ".gguf")).string();
    }
    if (options.disk_cap_bytes) impl->json["cap"] = *options.disk_cap_bytes;
    impl->save();
  }
  return std::unique_ptr<Memory>(new Memory(std::move(impl)));
}

Result<std::unique_ptr<Memory>> Memory::look(const MemoryOptions& options) {
  RH_TRY(const MemoryIdentity identity, identify_memory(options.folder));
  auto impl = std::make_unique<Impl>();
  impl->folder = options.folder;
  impl->json = Json::parse(contents(identity.folder / kFile));
  return std::unique_ptr<Memory>(new Memory(std::move(impl)));
}

Result<AddPlan> Memory::plan(const AddOptions& options) {
  AddReport ignored;
  RH_TRY(const auto found, impl_->scan(options, ignored));
  AddPlan plan;
  plan.index_only = options.index_only;
  for (const Impl::Found& source : found) {
    const bool known = impl_->sources().contains(source.name);
    if (known && impl_->sources()[source.name]["text"] == source.bytes) {
      ++plan.sources_unchanged;
      continue;
    }
    ++(known ? plan.sources_changed : plan.sources_new);
    plan.tokens += source.bytes.size() / 4;
  }
  plan.kv_bytes = plan.tokens * 12288;
  plan.seconds = number_from("RHAPSODE_FAKE_PLAN_S");
  return plan;
}

Result<AddReport> Memory::add(const AddOptions& options) {
  AddReport report;
  report.index_only = options.index_only;
  if (options.sync) {
    const auto gone = impl_->vanished(options);
    if (!gone.empty() && (!options.confirm_removal || options.confirm_removal(gone))) {
      for (const std::string& name : gone) impl_->sources().erase(name);
      report.removed = static_cast<int>(gone.size());
    }
  }
  RH_TRY(const auto found, impl_->scan(options, report));
  AddProgress progress;
  progress.sources_total = static_cast<int>(found.size());
  for (const Impl::Found& source : found) progress.tokens_total += source.bytes.size() / 4;
  for (const Impl::Found& source : found) {
    progress.source = source.name;
    pause();
    if (options.on_progress && !options.on_progress(progress)) {
      report.cancelled = true;
      break;
    }
    Json& stored = impl_->sources()[source.name];
    const int versions = stored.is_null() ? 0 : stored["versions"].get<int>();
    ++progress.sources_done;
    if (versions > 0 && stored["text"] == source.bytes) {
      ++report.unchanged;
      continue;
    }
    ++(versions > 0 ? report.updated : report.added);
    stored = {{"text", source.bytes},
              {"versions", versions + 1},
              {"tags", options.tags},
              {"event_time", options.event_time},
              {"index_only", options.index_only}};
    if (source.bytes.find('\f') != std::string::npos)
      report.warnings.push_back({source.name, "a page has no text"});
    report.passages += static_cast<int>(pieces(source.bytes, "\n\n").size());
    report.encoded_tokens += source.bytes.size() / 4;
    progress.tokens_done += source.bytes.size() / 4;
    progress.tokens_per_s = 1000;
    progress.seconds_left = static_cast<double>(progress.tokens_total - progress.tokens_done) / 1000;
  }
  report.evaluated_tokens = report.encoded_tokens;
  report.kv_bytes = options.index_only ? 0 : report.encoded_tokens * 12288;
  report.seconds = 1;
  impl_->save();
  return report;
}

Result<std::vector<FoundPassage>> Memory::search(const std::string& question, const SearchOptions& options) {
  std::vector<FoundPassage> found;
  for (FoundPassage& passage : impl_->passages(options.filter)) {
    const int shared = shared_words(question, passage.text);
    if (shared == 0) continue;
    passage.keywords = options.keywords ? shared : 0;
    passage.latent = options.latent ? shared * 0.1 : 0;
    passage.latent_z = passage.latent * 2;
    passage.keywords_z = passage.keywords * 2;
    passage.score = passage.latent + passage.keywords;
    found.push_back(std::move(passage));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  if (found.size() > static_cast<size_t>(options.limit)) found.resize(static_cast<size_t>(options.limit));
  return found;
}

namespace {

// The sentence of the best passage that shares most with the question.
Citation cited_sentence(const FoundPassage& best, const std::string& question) {
  Span chosen{0, best.text.size()};
  int most = -1;
  for (const Span& span : pieces(best.text, ". ")) {
    const int shared = shared_words(question, best.text.substr(span.begin, span.end - span.begin));
    if (shared > most) chosen = span;
    most = std::max(most, shared);
  }
  const auto ends_in_space = [&] {
    return std::isspace(static_cast<unsigned char>(best.text[chosen.end - 1]));
  };
  while (chosen.end > chosen.begin + 1 && ends_in_space()) --chosen.end;
  const PassageInfo& passage = best.passage;
  return {1,
          passage.source,
          passage.version,
          passage.start_byte + chosen.begin,
          passage.start_byte + chosen.end,
          passage.line,
          passage.page,
          best.text.substr(chosen.begin, chosen.end - chosen.begin),
          4.5};
}

void speak(const std::string& sentence, const AskOptions& options, Answer& answer) {
  for (const Span& word : pieces(sentence, " ")) {
    pause();
    if (answer.usage.generated_tokens == options.max_tokens) {
      answer.finish = FinishReason::kLength;
      return;
    }
    const std::string piece = sentence.substr(word.begin, word.end - word.begin);
    answer.text += piece;
    ++answer.usage.generated_tokens;
    if (options.on_text && !options.on_text(piece)) {
      answer.finish = FinishReason::kCancelled;
      answer.citations.clear();
      return;
    }
  }
}

void count(const AskOptions& options, Answer& answer) {
  for (const FoundPassage& passage : answer.passages) answer.usage.cached_tokens += passage.passage.tokens;
  answer.usage.memory_tokens_read = answer.usage.cached_tokens;
  answer.usage.evaluated_tokens = static_cast<int>(options.question.size() / 4);
  answer.usage.prompt_tokens = answer.usage.cached_tokens + answer.usage.evaluated_tokens;
  answer.timing.ttft_ms = 42;
  answer.timing.decode_tokens_per_s = 20;
}

}  // namespace

Result<Answer> Memory::ask(const AskOptions& options) {
  if (options.max_tokens > 1000000)
    return make_error(ErrorKind::kTooLarge, "more tokens than the context holds");
  Answer answer;
  RH_TRY(answer.passages, search(options.question, {options.filter, options.most_passages}));
  if (!options.passages.empty()) {
    answer.passages = impl_->passages(options.filter);
    std::erase_if(answer.passages, [&](const FoundPassage& found) {
      return std::count(options.passages.begin(), options.passages.end(), found.passage.id) == 0;
    });
  }
  answer.policy = options.policy == ReadPolicy::kAuto ? ReadPolicy::kReuse : options.policy;
  answer.policy_reason = answer.policy == ReadPolicy::kReuse ? "the model's verdict allows it" : "as asked";
  if (answer.passages.empty() && options.abstain) {
    answer.abstained = true;
    answer.text = "The memory does not say.";
    return answer;
  }
  std::string sentence = "I do not know.";
  if (!answer.passages.empty()) {
    const Citation citation = cited_sentence(answer.passages.front(), options.question);
    sentence = citation.quote;
    if (options.cite) answer.citations.push_back(citation);
  }
  if (!options.history.empty()) sentence = fmt::format("{}: {}", options.history.size() / 2 + 1, sentence);
  std::reverse(answer.passages.begin(), answer.passages.end());
  count(options, answer);
  speak(sentence, options, answer);
  // Each hop reads the same, the later ones by links.
  for (int hop = 1; options.hops > 1 && hop <= options.hops; ++hop) {
    answer.hops.push_back({fmt::format("{} {}", options.question, hop), answer.passages, answer.text});
    if (hop == 1) continue;
    for (FoundPassage& found : answer.hops.back().passages) found.link = PassageLink{1, "page"};
  }
  return answer;
}

// A token is a byte, each as likely as any other but the one that stands there.
Result<AnswerScore> Memory::score(const AskOptions&, const std::string& answer, int most_tokens) {
  AnswerScore score;
  for (const char c : answer.substr(0, static_cast<size_t>(most_tokens))) {
    const auto token = static_cast<unsigned char>(c);
    score.tokens.push_back(token);
    score.logits.emplace_back(256, 0.0f)[token] = 1.0f;
  }
  return score;
}

// Of a text that holds DERIVED, one answer was made.
Result<std::vector<DerivedAnswer>> Memory::derived(const ForgetOptions& options) {
  std::vector<DerivedAnswer> derived;
  for (const auto& [name, source] : impl_->sources().items()) {
    const bool named =
        std::any_of(options.sources.begin(), options.sources.end(),
                    [&, &name = name](const auto& given) { return is_at_or_below(name, given); });
    if (named && source["text"].get<std::string>().find("DERIVED") != std::string::npos) {
      derived.push_back({"work", 3, kTime, "It says so in " + name + "."});
    }
  }
  return derived;
}

Result<std::vector<SourceInfo>> Memory::list(const SourceFilter& filter) {
  std::vector<SourceInfo> list;
  for (const auto& [name, source] : impl_->sources().items()) {
    if (impl_->selected(name, source, filter)) list.push_back(impl_->info(name));
  }
  return list;
}

Result<SourceDetail> Memory::show(const std::string& source) {
  RH_TRY_STATUS(text(source));
  SourceDetail detail;
  detail.info = impl_->info(source_name(source));
  for (int version = 1; version <= detail.info.versions; ++version) {
    const bool current = version == detail.info.versions;
    detail.versions.push_back({version, kTime, current ? "" : kTime, detail.info.event_time,
                               detail.info.bytes, std::string(64, 'a')});
  }
  for (const FoundPassage& found : impl_->passages({{source_name(source)}, {}, ""})) {
    detail.passages.push_back(found.passage);
  }
  return detail;
}

Result<std::string> Memory::text(const std::string& source) {
  const std::string name = source_name(source);
  if (!impl_->sources().contains(name)) return make_error(ErrorKind::kNotFound, "no source {}", name);
  return impl_->sources()[name]["text"].get<std::string>();
}

Result<ForgetReport> Memory::forget(const ForgetOptions& options) {
  ForgetReport report;
  for (const auto& [name, source] : impl_->sources().items()) {
    const Json& tags = source["tags"];
    const bool named =
        std::any_of(options.sources.begin(), options.sources.end(),
                    [&, &name = name](const auto& given) { return is_at_or_below(name, given); });
    const bool tagged = std::any_of(options.tags.begin(), options.tags.end(), [&](const auto& tag) {
      return std::find(tags.begin(), tags.end(), tag) != tags.end();
    });
    if (named || tagged) report.sources.push_back(name);
  }
  if (options.confirm && !options.confirm(report.sources)) return ForgetReport{};
  RH_TRY(report.derived, derived(options));
  for (const std::string& name : report.sources) {
    report.passages += impl_->info(name).passages;
    report.bytes += impl_->info(name).bytes;
    impl_->sources().erase(name);
  }
  impl_->save();
  return report;
}

Result<MemoryStats> Memory::stats() {
  MemoryStats stats;
  stats.model = impl_->json["model_name"];
  stats.fingerprint = "f1e2d3";
  stats.kv_cap_bytes = impl_->json.value("cap", uint64_t{0});
  for (const auto& [name, source] : impl_->sources().items()) {
    const SourceInfo info = impl_->info(name);
    ++stats.sources;
    stats.versions += info.versions;
    ++stats.contents;
    stats.passages += info.passages;
    stats.tokens += info.tokens;
    stats.text_bytes += info.bytes;
  }
  return stats;
}

Result<VerifyReport> Memory::verify(const VerifyOptions& options) {
  VerifyReport report;
  for (const auto& [name, source] : impl_->sources().items()) {
    ++report.texts_checked;
    if (source["text"].get<std::string>().find("DAMAGED") != std::string::npos) {
      report.problems.push_back({name, "the checksum of its text is wrong"});
    }
  }
  report.extents_checked = report.texts_checked;
  report.passages_encoded = std::max(1, static_cast<int>(options.sample * report.texts_checked));
  return report;
}

Status Memory::export_to(const fs::path& file) {
  std::ofstream out(file, std::ios::binary);
  out << impl_->json.dump();
  if (!out.flush()) return make_error(ErrorKind::kIo, "cannot write {}", file.string());
  return {};
}

Result<RoutingReport> Memory::make_routing(Engine&, const RoutingOptions& options) {
  if (options.on_progress && !options.on_progress(20000)) {
    return make_error(ErrorKind::kCancelled, "cancelled");
  }
  return RoutingReport{options.output.empty() ? "fake.rhw" : options.output.string(), "fake", 20000, 1.5};
}

Status Memory::import_from(const fs::path& file, const fs::path& folder) {
  if (!fs::exists(file)) return make_error(ErrorKind::kNotFound, "{} does not exist", file.string());
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    return make_error(ErrorKind::kInvalidArgument, "{} is not empty", folder.string());
  }
  if (!Json::accept(contents(file))) return make_error(ErrorKind::kCorrupt, "{} is damaged", file.string());
  fs::create_directories(folder);
  std::ofstream(folder / kFile) << contents(file);
  return {};
}

}  // namespace rhapsode
