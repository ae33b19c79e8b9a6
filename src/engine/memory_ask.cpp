// Memory::search and Memory::ask: route, read, answer, cite.
#include <algorithm>

#include "engine/memory_impl.h"
#include "engine/verdict.h"
#include "recall/abstention.h"
#include "recall/citer.h"

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

// Text of the passage without the white space at its ends, and how much was cut in front.
std::pair<size_t, size_t> trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n\f\v");
  if (first == std::string_view::npos) return {0, 0};
  return {first, text.find_last_not_of(" \t\r\n\f\v") + 1};
}

int line_of(std::string_view text, size_t offset, int first_line) {
  return first_line + static_cast<int>(std::count(text.begin(), text.begin() + offset, '\n'));
}

// What one ask() works with, from the passages chosen to the prompt.
struct Reading {
  std::vector<FoundPassage> passages;  // in the order they are read
  std::vector<text::DocumentKind> kinds;
  std::vector<PassageTokens> tokens;
  std::vector<std::vector<store::PagePin>> pages;  // only under reuse, or when citing
  std::vector<int32_t> shifts;
  std::vector<int32_t> tail;
  int32_t tail_position = 0;
  int memory_tokens = 0;
};

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
                                                      const store::Selection& selection) {
  std::vector<int64_t> ids;
  for (const recall::Ranked& entry : ranked) ids.push_back(entry.passage);
  RH_TRY(const std::vector<store::PassageRow> rows, catalog->passages(ids, selection));
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
    RH_TRY(passage.text, catalog->passage_text(entry.passage));
    passage.score = entry.score;
    passage.latent = entry.latent;
    passage.keywords = entry.keywords;
    passage.latent_z = entry.latent_z;
    passage.keywords_z = entry.keywords_z;
    passages.push_back(std::move(passage));
  }
  return passages;
}

Result<std::vector<FoundPassage>> Memory::search(const std::string& question, const SearchOptions& options) {
  std::lock_guard lock(impl_->mutex);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const store::Selection selection, impl_->selection(options.filter));
  recall::RouteOptions route_options;
  route_options.selection = selection;
  route_options.count = options.limit;
  route_options.latent = options.latent;
  route_options.keywords = options.keywords;
  RH_TRY(const recall::Route route, impl_->router->route(*impl_->catalog, question, route_options));
  return impl_->found(route.ranked, selection);
}

// One ask(), step by step.
class Memory::Asking {
 public:
  Asking(Impl& memory, const AskOptions& options) : memory_(memory), options_(options), begin_ns_(now_ns()) {}

  Result<Answer> run() {
    RH_TRY_STATUS(check());
    RH_TRY(const bool fit, choose());
    answer_.timing.route_ms = ms_between(begin_ns_, now_ns());
    if (!fit) return abstained();
    RH_TRY_STATUS(place());
    RH_TRY_STATUS(load());
    RH_TRY(const Response response, generate());
    const bool read = !reading_.passages.empty();
    answer_.abstained = options_.abstain && read && recall::is_refusal(answer_.text);
    const bool citable = read && !answer_.abstained && response.finish != FinishReason::kCancelled;
    if (options_.cite && citable) RH_TRY_STATUS(cite(response));
    answer_.passages = std::move(reading_.passages);
    answer_.timing.total_ms = ms_between(begin_ns_, now_ns());
    return std::move(answer_);
  }

  Result<AnswerScore> score(const std::string& answer, int most_tokens);

 private:
  Status check() const;
  Result<bool> choose();
  Status place();
  Status load();
  std::vector<int32_t> prompt() const;
  Result<std::shared_ptr<Generation::State>> reader(Request request);
  Result<Response> generate();
  Status cite(const Response& response);
  Answer abstained();
  void add_citation(const recall::Support& support);

  Impl& memory_;
  const AskOptions& options_;
  int64_t begin_ns_;
  int64_t first_text_ns_ = 0;
  int made_tokens_ = 0;  // of passages whose KV was not there
  Reading reading_;
  Answer answer_;
};

Status Memory::Asking::check() const {
  if (options_.question.find_first_not_of(" \t\r\n") == std::string::npos) {
    return make_error(ErrorKind::kInvalidArgument, "the question is empty");
  }
  if (options_.budget_tokens < 1 || options_.most_passages < 0) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a budget of {} tokens in {} passages has no meaning: give at least 1 token, and 0 "
                      "passages to read nothing",
                      options_.budget_tokens, options_.most_passages);
  }
  return {};
}

// False when the memory holds nothing that fits the question.
Result<bool> Memory::Asking::choose() {
  if (options_.passages.empty() && options_.most_passages == 0) return true;
  RH_TRY(const store::Selection selection, memory_.selection(options_.filter));
  recall::Route route;
  if (options_.passages.empty()) {
    recall::RouteOptions route_options;
    route_options.selection = selection;
    route_options.count = options_.most_passages;
    RH_TRY(route, memory_.router->route(*memory_.catalog, options_.question, route_options));
    answer_.usage.probe_tokens += route.probe_tokens;
  } else {
    for (int64_t id : options_.passages) route.ranked.push_back({id, 0, 0, 0, 0, 0});
    std::reverse(route.ranked.begin(), route.ranked.end());
  }
  RH_TRY(std::vector<FoundPassage> found, memory_.found(route.ranked, selection));
  for (FoundPassage& passage : found) {
    RH_TRY(PassageTokens tokens, memory_.frame->passage(passage.passage.header, passage.text));
    const auto count = static_cast<int>(tokens.tokens.size());
    if (options_.passages.empty() && reading_.memory_tokens + count > options_.budget_tokens) continue;
    reading_.memory_tokens += count;
    reading_.passages.push_back(std::move(passage));
    reading_.tokens.push_back(std::move(tokens));
    store::Selection one = selection;
    one.sources = {reading_.passages.back().passage.source};
    RH_TRY(const std::vector<store::SourceRow> rows, memory_.catalog->sources(one));
    reading_.kinds.push_back(kind_of(rows.empty() ? "" : rows.front().record.kind));
  }
  if (reading_.passages.empty() && !found.empty()) {
    return make_error(ErrorKind::kTooLarge,
                      "none of the {} passages found fits a budget of {} tokens: raise --budget to some 640",
                      found.size(), options_.budget_tokens);
  }
  // The best one last: nearest to the question.
  std::reverse(reading_.passages.begin(), reading_.passages.end());
  std::reverse(reading_.tokens.begin(), reading_.tokens.end());
  std::reverse(reading_.kinds.begin(), reading_.kinds.end());
  answer_.usage.memory_tokens_read = reading_.memory_tokens;
  // A question within a conversation may name nothing itself ("and why?").
  const bool judged = options_.abstain && options_.passages.empty() && options_.history.empty();
  if (!judged) return !reading_.passages.empty();
  std::vector<std::string> texts;
  for (const FoundPassage& passage : reading_.passages) {
    texts.push_back(passage.passage.header + "\n" + passage.text);
  }
  return !texts.empty() && !recall::is_unfit(recall::coverage_of(route.terms, texts));
}

Answer Memory::Asking::abstained() {
  answer_.abstained = true;
  answer_.passages = std::move(reading_.passages);  // what was looked at, with its scores
  answer_.usage.memory_tokens_read = 0;
  answer_.policy_reason = "the memory holds nothing that fits the question";
  answer_.text = "The memory holds nothing about this.";
  if (options_.on_text) options_.on_text(answer_.text);
  answer_.timing.ttft_ms = answer_.timing.total_ms = ms_between(begin_ns_, now_ns());
  return std::move(answer_);
}

Status Memory::Asking::place() {
  RH_TRY(reading_.tail, memory_.frame->tail(options_.question, options_.history));
  const auto verdict = engine::choose_policy(
      options_.policy, memory_.engine->options, memory_.model_sha256,
      reading_.memory_tokens / std::max<int>(1, static_cast<int>(reading_.passages.size())));
  answer_.policy = verdict.policy;
  answer_.policy_reason = verdict.reason;
  if (options_.order == ReadOrder::kParallel && answer_.policy != ReadPolicy::kReuse) {
    return make_error(ErrorKind::kInvalidArgument,
                      "passages can share positions only when their KV is reused; the policy is {}",
                      to_string(answer_.policy));
  }
  const auto start = static_cast<int32_t>(memory_.frame->prefix().size());
  int32_t position = start;
  for (const PassageTokens& tokens : reading_.tokens) {
    const auto count = static_cast<int32_t>(tokens.tokens.size());
    const bool parallel = options_.order == ReadOrder::kParallel;
    reading_.shifts.push_back(parallel ? start : position);
    position = parallel ? std::max(position, start + count) : position + count;
  }
  reading_.tail_position = position;
  const int64_t needed = static_cast<int64_t>(start) + reading_.memory_tokens +
                         static_cast<int64_t>(reading_.tail.size()) + options_.max_tokens;
  if (needed > memory_.engine->context_tokens) {
    return make_error(ErrorKind::kTooLarge,
                      "{} tokens of memory, {} of question and history and {} for the answer do not fit the "
                      "context of {}: read less with --budget, or raise --context",
                      start + reading_.memory_tokens, reading_.tail.size(), options_.max_tokens,
                      memory_.engine->context_tokens);
  }
  return {};
}

Status Memory::Asking::load() {
  if (answer_.policy != ReadPolicy::kReuse) return {};
  const int64_t begin = now_ns();
  std::vector<recall::KvWanted> wanted;
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    wanted.push_back({reading_.passages[i].passage.id, &reading_.tokens[i]});
  }
  const uint64_t before = memory_.encoder->evaluated_tokens();
  RH_TRY(reading_.pages, memory_.tier->load(*memory_.catalog, wanted, memory_.upkeep()));
  // What had to be made from text was evaluated for this answer, and is not counted as cached again.
  made_tokens_ = static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  answer_.timing.load_ms = ms_between(begin, now_ns());
  return {};
}

std::vector<int32_t> Memory::Asking::prompt() const {
  std::vector<int32_t> tokens = memory_.frame->prefix();
  for (const PassageTokens& passage : reading_.tokens) {
    tokens.insert(tokens.end(), passage.tokens.begin(), passage.tokens.end());
  }
  tokens.insert(tokens.end(), reading_.tail.begin(), reading_.tail.end());
  return tokens;
}

// A request that reads what was chosen, the way that was chosen.
Result<std::shared_ptr<Generation::State>> Memory::Asking::reader(Request request) {
  auto state = std::make_shared<Generation::State>(std::move(request), *memory_.engine->pool);
  state->submitted_ns = now_ns();
  state->use_prefix_cache = answer_.policy != ReadPolicy::kFull;
  if (answer_.policy != ReadPolicy::kReuse) return state;
  RH_TRY(const std::span<const store::PagePin> prefix, memory_.encoder->prefix_pages());
  const auto add_run = [&](std::span<const store::PagePin> pages, size_t tokens, int32_t shift) {
    engine::ContextRun run{{}, static_cast<int>(tokens), shift};
    for (const store::PagePin& page : pages) run.pages.push_back(page.share());
    state->runs.push_back(std::move(run));
  };
  std::string provenance = memory_.kv_fingerprint;
  add_run(prefix, memory_.frame->prefix().size(), 0);
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    add_run(reading_.pages[i], reading_.tokens[i].tokens.size(), reading_.shifts[i]);
    provenance += fmt::format(";{}@{}", reading_.passages[i].passage.id, reading_.shifts[i]);
  }
  state->prefix_key = {"reuse", provenance};
  return state;
}

Result<Response> Memory::Asking::generate() {
  Request request;
  request.max_tokens = options_.max_tokens;
  request.sampling = options_.sampling;
  request.on_text = [this](std::string_view text) {
    if (first_text_ns_ == 0) first_text_ns_ = now_ns();
    return !options_.on_text || options_.on_text(text);
  };
  RH_TRY(auto state, reader(std::move(request)));
  RH_TRY(Generation generation, memory_.engine->start(std::move(state), prompt()));
  RH_TRY(Response response, generation.wait());
  answer_.text = response.text;
  answer_.finish = response.finish;
  answer_.usage.prompt_tokens = response.usage.prompt_tokens;
  answer_.usage.cached_tokens = response.usage.cached_tokens - made_tokens_;
  answer_.usage.evaluated_tokens = response.usage.evaluated_tokens + made_tokens_;
  answer_.usage.generated_tokens = response.usage.generated_tokens;
  answer_.timing.prefill_ms = response.timing.prefill_ms;
  answer_.timing.decode_tokens_per_s = response.timing.decode_tokens_per_s;
  if (first_text_ns_) answer_.timing.ttft_ms = ms_between(begin_ns_, first_text_ns_);
  return response;
}

// The answer's tokens are forced one by one; each request finds all but the last of its tokens cached.
Result<AnswerScore> Memory::Asking::score(const std::string& answer, int most_tokens) {
  RH_TRY_STATUS(check());
  RH_TRY(const bool fit, choose());
  if (!fit) return make_error(ErrorKind::kNotFound, "the memory holds nothing that fits the question");
  RH_TRY_STATUS(place());
  RH_TRY_STATUS(load());
  AnswerScore score;
  RH_TRY(score.tokens, memory_.passes->tokenizer().encode(answer, {}));
  if (score.tokens.size() > static_cast<size_t>(most_tokens)) score.tokens.resize(most_tokens);
  std::vector<int32_t> read = prompt();
  for (const int32_t token : score.tokens) {
    Request request;
    request.max_tokens = 1;
    request.logits = true;
    request.ignore_end = true;
    RH_TRY(auto state, reader(std::move(request)));
    state->use_prefix_cache = true;  // exact, and nobody takes the time
    RH_TRY(Generation generation, memory_.engine->start(std::move(state), read));
    RH_TRY(Response response, generation.wait());
    if (response.tokens.empty()) {
      return make_error(ErrorKind::kCancelled, "scoring was cancelled after {} tokens", score.logits.size());
    }
    score.logits.push_back(std::move(response.tokens.front().logits));
    read.push_back(token);
  }
  return score;
}

void Memory::Asking::add_citation(const recall::Support& support) {
  const FoundPassage& passage = reading_.passages[support.passage];
  const std::string_view sentence =
      std::string_view(passage.text).substr(support.begin, support.end - support.begin);
  const auto [first, last] = trimmed(sentence);
  Citation citation;
  citation.n = static_cast<int>(answer_.citations.size()) + 1;
  citation.source = passage.passage.source;
  citation.version = passage.passage.version;
  citation.start_byte = passage.passage.start_byte + support.begin + first;
  citation.end_byte = passage.passage.start_byte + support.begin + last;
  citation.line = line_of(passage.text, support.begin + first, passage.passage.line);
  citation.page = passage.passage.page;
  citation.quote = std::string(sentence.substr(first, last - first));
  citation.support = support.sentence_nats;
  answer_.citations.push_back(std::move(citation));
}

Status Memory::Asking::cite(const Response& response) {
  const int64_t begin = now_ns();
  if (reading_.pages.empty()) {
    // Under full and prefix the passages' KV is part of the request's own pages; citing reads it from the
    // tier.
    std::vector<recall::KvWanted> wanted;
    for (size_t i = 0; i < reading_.passages.size(); ++i) {
      wanted.push_back({reading_.passages[i].passage.id, &reading_.tokens[i]});
    }
    const uint64_t before = memory_.encoder->evaluated_tokens();
    RH_TRY(reading_.pages, memory_.tier->load(*memory_.catalog, wanted, memory_.upkeep()));
    answer_.usage.probe_tokens += static_cast<int>(memory_.encoder->evaluated_tokens() - before);
  }
  std::vector<recall::ReadPassage> read;
  for (size_t i = 0; i < reading_.passages.size(); ++i) {
    recall::ReadPassage passage;
    passage.pages = reading_.pages[i];
    passage.tokens = &reading_.tokens[i];
    passage.text = reading_.passages[i].text;
    passage.kind = reading_.kinds[i];
    passage.shift = reading_.shifts[i];
    read.push_back(passage);
  }
  std::vector<int32_t> answer;
  for (const GeneratedToken& token : response.tokens) {
    if (!memory_.passes->tokenizer().is_end_of_generation(token.token)) answer.push_back(token.token);
  }
  recall::AnsweredPrompt prompt;
  RH_TRY(const std::span<const store::PagePin> prefix, memory_.encoder->prefix_pages());
  recall::add_references(prefix, static_cast<int>(memory_.frame->prefix().size()), 0, prompt.prefix);
  prompt.passages = read;
  prompt.tail = reading_.tail;
  prompt.answer = answer;
  prompt.tail_position = reading_.tail_position;
  recall::Citer citer(*memory_.passes);
  RH_TRY(const recall::Citing citing, citer.cite(prompt));
  for (const recall::Support& support : citing.supports) add_citation(support);
  answer_.usage.probe_tokens += static_cast<int>(citing.probe_tokens);
  answer_.timing.cite_ms = ms_between(begin, now_ns());
  return {};
}

Result<Answer> Memory::ask(const AskOptions& options) {
  std::lock_guard lock(impl_->mutex);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  return Asking(*impl_, options).run();
}

Result<AnswerScore> Memory::score(const AskOptions& options, const std::string& answer, int most_tokens) {
  std::lock_guard lock(impl_->mutex);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  return Asking(*impl_, options).score(answer, most_tokens);
}

}  // namespace rhapsode
