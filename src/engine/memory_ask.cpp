// Memory::search and Memory::ask: route, read, answer, cite.
#include <algorithm>
#include <set>

#include "engine/asking.h"
#include "engine/hopping.h"
#include "recall/abstention.h"

namespace rhapsode {

namespace {

using recall::PassageTokens;

text::DocumentKind kind_of(const std::string& name) {
  for (int kind = 0; kind <= static_cast<int>(text::DocumentKind::kNotebook); ++kind) {
    if (name == to_string(static_cast<text::DocumentKind>(kind)))
      return static_cast<text::DocumentKind>(kind);
  }
  return text::DocumentKind::kPlain;
}

}  // namespace

PassageInfo Memory::Impl::info_of(const store::PassageRow& row) const {
  PassageInfo info;
  info.id = row.id;
  info.source = row.source;
  info.version = row.version;
  info.start_byte = row.begin;
  info.end_byte = row.end;
  info.line = row.line;
  info.page = row.page;
  info.tokens = row.tokens;
  info.header = row.header;
  info.tier = tier && tier->holds(row.id) ? KvTier::kMemory : row.has_kv ? KvTier::kDisk : KvTier::kText;
  return info;
}

Result<std::vector<FoundPassage>> Memory::Impl::found(std::span<const recall::Ranked> ranked,
                                                      const QuestionTimes& times) {
  std::vector<int64_t> ids;
  for (const recall::Ranked& entry : ranked) ids.push_back(entry.passage);
  RH_TRY(const std::vector<store::PassageRow> rows, catalog->passages(ids, times.selection));
  std::vector<FoundPassage> passages;
  for (const recall::Ranked& entry : ranked) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.id == entry.passage; });
    if (row == rows.end()) {
      return make_error(ErrorKind::kNotFound, "the memory has no passage {} for this question's filters",
                        entry.passage);
    }
    FoundPassage passage;
    passage.passage = info_of(*row);
    const auto superseded = times.superseded.find(row->source);
    if (superseded != times.superseded.end()) passage.passage.superseded_by = superseded->second.by;
    RH_TRY(passage.text, catalog->passage_text(entry.passage));
    passage.score = entry.score;
    passage.latent = entry.latent;
    passage.keywords = entry.keywords;
    passage.latent_z = entry.latent_z;
    passage.keywords_z = entry.keywords_z;
    passage.judged = entry.judged;
    passage.evidence = entry.evidence;
    passage.chained = entry.chained;
    if (entry.via) {
      RH_TRY(std::string mention, catalog->mention_key(entry.via->mention));
      passage.link = PassageLink{entry.via->passage, std::move(mention)};
    }
    passages.push_back(std::move(passage));
  }
  return passages;
}

Result<std::vector<FoundPassage>> Memory::search(const std::string& question, const SearchOptions& options) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const Impl::QuestionTimes times,
         impl_->question_times(question, options.filter, options.heed_times));
  recall::RouteOptions route_options = Impl::route_options(times);
  route_options.count = options.limit;
  route_options.latent = options.latent;
  route_options.keywords = options.keywords;
  RH_TRY(const RoutePlan plan, impl_->route_plan({options.judge, options.chain, options.links}, options.rank,
                                                 options.latent && options.keywords));
  RH_TRY(const recall::Route route,
         impl_->with_room([&] { return impl_->route(question, route_options, plan); }));
  return impl_->found(route.ranked, times);
}

Result<Answer> Memory::Asking::run() {
  RH_TRY_STATUS(check());
  RH_TRY(const bool fit, choose());
  answer_.timing.route_ms = ms_between(begin_ns_, now_ns());
  if (!fit) return abstained();
  RH_TRY_STATUS(place());
  RH_TRY(const Response response, memory_.with_room([&] { return read_and_generate(); }));
  const bool read = !reading_.passages.empty();
  answer_.abstained = options_.abstain && read && recall::is_refusal(answer_.text);
  const bool citable = read && !answer_.abstained && response.finish != FinishReason::kCancelled;
  if (options_.cite && citable) RH_TRY_STATUS(cite(response));
  // The answer has been told: that it could not be checked takes nothing from it.
  if (const Status checked = check_self(); !checked.ok()) {
    answer_.self_check.problem = "it could not be checked: " + checked.error().message;
  }
  answer_.passages = std::move(reading_.passages);
  answer_.notes.insert(answer_.notes.end(), problems_.begin(), problems_.end());
  if (options_.trace) answer_.trace = std::move(trace_);
  answer_.timing.total_ms = ms_between(begin_ns_, now_ns());
  return std::move(answer_);
}

Result<Response> Memory::Asking::read_and_generate() {
  const auto read = [&]() -> Result<Response> {
    RH_TRY_STATUS(load());
    RH_TRY_STATUS(blend());
    trace_.routings.front().route_ms = answer_.timing.route_ms;
    trace_.routings.front().read_ms = answer_.timing.load_ms + answer_.timing.blend_ms;
    return generate();
  };
  Result<Response> response = read();
  if (response.ok()) return response;
  reading_.pages.clear();
  reading_.misses.clear();
  reading_.blend = {};
  // What was told cannot be told again.
  if (first_text_ns_ != 0 && Impl::lacks_room(response.error())) {
    return make_error(ErrorKind::kInternal, "the answer broke off: {}", response.error().message);
  }
  return response;
}

Status Memory::Asking::check() const {
  if (options_.question.find_first_not_of(" \t\r\n") == std::string::npos) {
    return make_error(ErrorKind::kInvalidArgument, "the question is empty");
  }
  if (options_.hops < 1) {
    return make_error(ErrorKind::kInvalidArgument, "{} hops have no meaning: give at least 1", options_.hops);
  }
  if (options_.budget_tokens < 1 || options_.most_passages < 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a budget of {} tokens in {} passages has no meaning: give at least 1 token, and 0 "
                      "passages to read nothing",
                      options_.budget_tokens, options_.most_passages);
  }
  const RerouteOptions& again = options_.reroute;
  if (again.every_tokens < 0 || again.entropy < 0 || again.attention < 0 || again.attention > 1 ||
      again.most < 1 || again.passages < 1) {
    return make_error(ErrorKind::kInvalidArgument,
                      "looking again after {} tokens, above {} nats or below {} of the attention, {} times "
                      "for {} passages has no meaning",
                      again.every_tokens, again.entropy, again.attention, again.most, again.passages);
  }
  if (again.on() && (!options_.passages.empty() || options_.most_passages == 0 || options_.hops > 1)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "passages are looked for again within an answer only where they are searched for, and "
                      "not between hops as well: leave out --reroute, or --read, --passages 0 and --hops");
  }
  if (!options_.begin.empty() &&
      !(options_.sampling.grammar.empty() && options_.sampling.json_schema.empty())) {
    return make_error(ErrorKind::kInvalidArgument,
                      "an answer whose beginning is given cannot follow a grammar: leave out one of them");
  }
  for (const int32_t token : options_.begin) {
    if (token < 0 || token >= memory_.passes->tokenizer().size()) {
      return make_error(ErrorKind::kInvalidArgument, "token id {} is outside the vocabulary of {}", token,
                        memory_.passes->tokenizer().size());
    }
  }
  return {};
}

Status Memory::Asking::look_up_kinds(std::span<const FoundPassage> found) {
  store::Selection wanted = times_.selection;
  for (const FoundPassage& passage : found) {
    if (kinds_.try_emplace(passage.passage.source, kind_of("")).second) {
      wanted.sources.push_back(passage.passage.source);
    }
  }
  if (wanted.sources.empty()) return {};
  RH_TRY(const std::vector<store::SourceRow> rows, memory_.catalog->sources(wanted));
  for (const store::SourceRow& row : rows) kinds_[row.record.name] = kind_of(row.record.kind);
  return {};
}

Result<bool> Memory::Asking::take(FoundPassage passage, Reading& reading) {
  RH_TRY(PassageTokens tokens,
         memory_.tokenizer->tokens(passage.passage.id, passage.passage.header, passage.text));
  const auto count = static_cast<int>(tokens.tokens.size());
  if (options_.passages.empty() && reading.memory_tokens + count > options_.budget_tokens) return false;
  if (!kinds_.contains(passage.passage.source)) RH_TRY_STATUS(look_up_kinds(std::span(&passage, 1)));
  reading.kinds.push_back(kinds_.at(passage.passage.source));
  reading.memory_tokens += count;
  reading.passages.push_back(std::move(passage));
  reading.tokens.push_back(std::move(tokens));
  return true;
}

// False when the memory holds nothing that fits the question.
Result<bool> Memory::Asking::choose() {
  trace_.routings.emplace_back().query = question_;
  if (options_.passages.empty() && options_.most_passages == 0) return true;
  RH_TRY(times_, memory_.question_times(question_, options_.filter, options_.heed_times));
  // Passages that are named are read whatever supersedes them.
  times_.selection.superseded |= !options_.passages.empty();
  recall::Route route;
  if (options_.passages.empty()) {
    RH_TRY(route, memory_.with_room([&] { return look_for(question_, options_.most_passages); }));
  } else {
    for (int64_t id : options_.passages) route.ranked.push_back({id, 0, 0, 0, 0, 0, std::nullopt});
    std::reverse(route.ranked.begin(), route.ranked.end());
  }
  RH_TRY(std::vector<FoundPassage> found, memory_.found(route.ranked, times_));
  TracedRouting& routing = trace_.routings.front();
  if (options_.trace && options_.passages.empty()) routing.found = found;
  routing.probe_tokens = route.probe_tokens;
  RH_TRY_STATUS(look_up_kinds(found));
  std::vector<recall::PassageTokenizer::Passage> texts;
  for (const FoundPassage& one : found) texts.push_back({one.passage.id, one.passage.header, one.text});
  RH_TRY_STATUS(memory_.tokenizer->prepare(texts, memory_.host_threads));
  for (FoundPassage& passage : found) RH_TRY_STATUS(take(std::move(passage), reading_));
  if (reading_.passages.empty() && !found.empty()) {
    return make_error(ErrorKind::kTooLarge,
                      "none of the {} passages found fits a budget of {} tokens: raise --budget to some 640",
                      found.size(), options_.budget_tokens);
  }
  // Passages asked for by id keep the order they were given in, best last.
  if (!options_.best_first || !options_.passages.empty()) {
    std::reverse(reading_.passages.begin(), reading_.passages.end());
    std::reverse(reading_.tokens.begin(), reading_.tokens.end());
    std::reverse(reading_.kinds.begin(), reading_.kinds.end());
  }
  for (size_t i = 0; i < reading_.passages.size(); ++i) note_joined(i);
  tell_times();
  // A question within a conversation may name nothing itself ("and why?").
  const bool judged = options_.abstain && options_.passages.empty() && options_.history.empty();
  if (!judged) return !reading_.passages.empty();
  std::vector<std::string> read;
  for (const FoundPassage& passage : reading_.passages) {
    read.push_back(passage.passage.header + "\n" + passage.text);
  }
  return !read.empty() && !recall::is_unfit(recall::coverage_of(route.terms, read));
}

Result<recall::Route> Memory::Asking::look_for(const std::string& query, int count) {
  recall::RouteOptions route_options = Impl::route_options(times_);
  route_options.count = count;
  RH_TRY(const RoutePlan plan,
         memory_.route_plan({options_.judge, options_.chain, options_.links}, options_.rank, true));
  RH_TRY(recall::Route route, memory_.route(query, route_options, plan));
  answer_.usage.probe_tokens += route.probe_tokens;
  answer_.usage.cold_candidates += route.cold_candidates;
  return route;
}

void Memory::Asking::note_joined(size_t index) {
  const PassageInfo& passage = reading_.passages[index].passage;
  trace_.routings[reading_.routing].joined.push_back(passage.id);
  const auto known = std::any_of(trace_.passages.begin(), trace_.passages.end(),
                                 [&](const PassageInfo& other) { return other.id == passage.id; });
  if (known) return;
  trace_.passages.push_back(passage);
  answer_.usage.memory_tokens_read += static_cast<int>(reading_.tokens[index].tokens.size());
}

// What the reader of the passages cannot see in them: the time asked for, and that a document is superseded.
void Memory::Asking::tell_times() {
  answer_.as_of = times_.as_of;
  answer_.notes = times_.notes;
  std::string told;
  std::set<std::string> said;
  const auto tell = [&](const std::string& source) {
    const auto superseded = times_.superseded.find(source);
    if (superseded == times_.superseded.end() || !said.insert(superseded->second.note).second) return;
    answer_.notes.push_back(superseded->second.note);
    told += " (Note: " + superseded->second.note + ")";
  };
  // Those that the question names, whether they are read or not.
  for (const std::string& source : times_.selection.admitted) tell(source);
  for (const FoundPassage& passage : reading_.passages) tell(passage.passage.source);
  if (!options_.filter.as_of.empty()) told += fmt::format(" (As of {}.)", options_.filter.as_of);
  options_.question = question_ + told;
}

Answer Memory::Asking::abstained() {
  answer_.abstained = true;
  answer_.passages = std::move(reading_.passages);  // what was looked at, with its scores
  answer_.usage.memory_tokens_read = 0;
  answer_.policy_reason = "the memory holds nothing that fits the question";
  answer_.text = "The memory holds nothing about this.";
  trace_.routings.front().route_ms = answer_.timing.route_ms;
  trace_.routings.front().joined.clear();
  trace_.passages.clear();
  if (options_.trace) answer_.trace = std::move(trace_);
  if (options_.on_text) options_.on_text(answer_.text);
  answer_.timing.ttft_ms = answer_.timing.total_ms = ms_between(begin_ns_, now_ns());
  return std::move(answer_);
}

Result<Response> Memory::Asking::generate() {
  Request request;
  request.max_tokens = options_.max_tokens;
  request.sampling = options_.sampling;
  request.on_text = [this](std::string_view text) {
    if (first_text_ns_ == 0) first_text_ns_ = now_ns();
    return !options_.on_text || options_.on_text(text);
  };
  begin_text_ = memory_.passes->tokenizer().decode(options_.begin);
  RH_TRY(auto state, reader(std::move(request)));
  if (!begin_text_.empty()) state->cancelled = !state->request.on_text(begin_text_);
  state->keep_sequence = options_.trace;
  if (options_.trace || options_.reroute.on()) {
    state->pause_at = [this](const engine::RequestState& told, std::span<const float> row) {
      return watch_.pauses_before(static_cast<int>(told.response.tokens.size()),
                                  begin_text_ + told.response.text, row);
    };
  }
  RH_TRY(Generation generation, memory_.engine->start(state, prompt()));
  const auto paused = [&] {
    const engine::SteppedOut told(memory_.gate);
    return state->wait_for_pause();
  };
  while (paused()) {
    route_again(*state);
    memory_.engine->scheduler->submit(state);
  }
  RH_TRY(Response response, generation.wait());
  answer_.text = begin_text_ + response.text;
  answer_.finish = response.finish;
  account(reading_, response.usage);
  answer_.usage.generated_tokens = response.usage.generated_tokens;
  answer_.usage.sparse_tokens = response.usage.sparse_tokens;
  if (options_.trace) finish_trace(*state, response);
  answer_.timing.prefill_ms = response.timing.prefill_ms;
  answer_.timing.decode_tokens_per_s = response.timing.decode_tokens_per_s;
  if (first_text_ns_) answer_.timing.ttft_ms = ms_between(begin_ns_, first_text_ns_);
  return response;
}

// The answer's tokens stand behind the prompt and are evaluated with it.
Result<AnswerScore> Memory::Asking::score(const std::string& answer, int most_tokens) {
  RH_TRY_STATUS(check());
  RH_TRY(const bool fit, choose());
  if (!fit) return make_error(ErrorKind::kNotFound, "the memory holds nothing that fits the question");
  RH_TRY_STATUS(place());
  RH_TRY_STATUS(load());
  RH_TRY_STATUS(blend());
  AnswerScore score;
  RH_TRY(score.tokens, memory_.passes->tokenizer().encode(answer, {}));
  if (score.tokens.size() > static_cast<size_t>(most_tokens)) score.tokens.resize(most_tokens);
  if (score.tokens.empty()) return score;
  Request request;
  request.max_tokens = 0;
  RH_TRY(auto state, reader(std::move(request)));
  state->use_prefix_cache = false;  // what it leaves there would make a later answer look fast
  state->scored_tokens = static_cast<int>(score.tokens.size());
  std::vector<int32_t> read = prompt();
  read.insert(read.end(), score.tokens.begin(), score.tokens.end());
  RH_TRY(Generation generation, memory_.engine->start(state, std::move(read)));
  RH_TRY(const Response response, generation.wait());
  if (response.finish == FinishReason::kCancelled) {
    return make_error(ErrorKind::kCancelled, "scoring was cancelled");
  }
  score.logits = std::move(state->prompt_logits);
  score.logits.resize(score.tokens.size());  // the row behind the last token scores nothing
  return score;
}

Result<Answer> Memory::ask(const AskOptions& options) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  if (options.hops > 1) return Hopping(*impl_, options).run();
  return Asking(*impl_, options).run();
}

Result<AnswerScore> Memory::score(const AskOptions& options, const std::string& answer, int most_tokens) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  return Asking(*impl_, options).score(answer, most_tokens);
}

}  // namespace rhapsode
