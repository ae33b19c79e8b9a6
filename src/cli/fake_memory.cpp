// A Memory for tests of the program: keeps texts in one JSON file and answers with the sentence that shares
// most words with the question, so that every command is tested without a model and in milliseconds.
//
// Linked in place of the engine's. A token is four bytes, a passage a blank-line paragraph; files ending in
// .bin are skipped, those ending in .bad fail, and a text that holds DAMAGED is a problem to verify().
// RHAPSODE_FAKE_DELAY_MS is the time that a word of an answer, or a source that is added, takes;
// RHAPSODE_FAKE_PLAN_S the time that plans promise.
#include "cli/fake_memory_impl.h"

namespace rhapsode {

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
    const std::string name = options.user.empty() ? source.name : "@" + options.user + "/" + source.name;
    Json& stored = impl_->sources()[name];
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
              {"index_only", options.index_only},
              {"user", options.user},
              {"supersedes", options.supersedes}};
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
  RH_TRY_STATUS(impl_->refused(options.filter.user, options.filter.all_users));
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

// Every word is a token, chosen looking at the passages in turn; a sentence that ends finds the same again.
AnswerTrace trace_of(const AskOptions& options, const Answer& answer) {
  AnswerTrace trace;
  TracedRouting& routing = trace.routings.emplace_back();
  routing.query = options.question;
  routing.found.assign(answer.passages.rbegin(), answer.passages.rend());
  for (const FoundPassage& found : answer.passages) {
    const PassageInfo& passage = found.passage;
    trace.passages.push_back(passage);
    routing.joined.push_back(passage.id);
    routing.places.push_back({passage.id, 10, passage.tokens, {0, passage.tokens, 0, ""}});
  }
  for (const Span& word : pieces(answer.text, " ")) {
    TracedToken& token = trace.tokens.emplace_back();
    token.text = answer.text.substr(word.begin, word.end - word.begin);
    token.passages.assign(answer.passages.size(), 0.1f);
    if (!token.passages.empty()) token.passages[trace.tokens.size() % token.passages.size()] = 0.2f;
    token.question = 0.1f;
  }
  trace.probe_tokens = static_cast<int>(trace.tokens.size());
  return trace;
}

}  // namespace

Result<Answer> Memory::ask(const AskOptions& options) {
  if (options.max_tokens > 1000000)
    return make_error(ErrorKind::kTooLarge, "more tokens than the context holds");
  Answer answer;
  SearchOptions searching;
  searching.filter = options.filter;
  searching.limit = options.most_passages;
  RH_TRY(answer.passages, search(options.question, searching));
  answer.as_of = options.filter.as_of;
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
  if (options.trace) answer.trace = trace_of(options, answer);
  if (options.reroute.sentences && answer.text.ends_with('.')) {
    answer.usage.reroutings = 1;
    if (answer.trace) {
      TracedRouting& routing = answer.trace->routings.emplace_back();
      routing.cause = RouteCause::kSentence;
      routing.token = answer.usage.generated_tokens;
      routing.query = options.question + " " + answer.text;
    }
  }
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

}  // namespace rhapsode
