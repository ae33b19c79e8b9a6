#include "eval/evaluation.h"

#include <algorithm>
#include <set>

#include "eval/answer_text.h"
#include "eval/citation_score.h"
#include "eval/metrics.h"

namespace rhapsode::eval {
namespace {

// Gold answers are judged over their first tokens: long ones (a list of authors) say no more, but cost more.
constexpr int kMostScoredTokens = 12;

// A lost GPU or a full disk spoils every question that is still to come.
constexpr int kMostFailures = 20;

Signal signal_of(const Context& context) {
  if (context.kind == Context::Kind::kBm25) return Signal::kKeywords;
  if (context.kind == Context::Kind::kJudged) return Signal::kJudged;
  if (context.kind == Context::Kind::kChain) return Signal::kChain;
  if (context.kind == Context::Kind::kEvidence) return Signal::kEvidence;
  if (context.kind == Context::Kind::kJudgedEvidence) return Signal::kJudgedEvidence;
  return context.kind == Context::Kind::kLatent ? Signal::kLatent : Signal::kFused;
}

ReadPolicy policy_of(const Context& context, const Options& options) {
  if (context.policy != ReadPolicy::kAuto) return context.policy;
  return is_searched(context) ? options.policy : ReadPolicy::kFull;
}

// Passages of one document as one hit, the best first.
std::vector<RankedPassage> by_unit(std::vector<RankedPassage> ranked, RankUnit unit) {
  if (unit == RankUnit::kPassage) return ranked;
  std::vector<RankedPassage> hits;
  for (RankedPassage& passage : ranked) {
    const auto same = std::find_if(hits.begin(), hits.end(), [&](const RankedPassage& hit) {
      return hit.passage.span.document == passage.passage.span.document;
    });
    if (same == hits.end()) hits.push_back(std::move(passage));
  }
  return hits;
}

double share_of_gold(const std::vector<RankedPassage>& read, const Question& question) {
  std::set<int> held;
  for (const RankedPassage& passage : read) held.insert(passage.gold.begin(), passage.gold.end());
  return static_cast<double>(held.size()) / static_cast<double>(question.gold.size());
}

}  // namespace

Json Evaluation::settings() const {
  const SubjectInfo info = subject_.info();
  const Task& task = plan_.task();
  Json contexts = Json::array();
  for (const Context& context : plan_.contexts()) contexts.push_back(to_string(context));
  const bool replays = task.kind == TaskKind::kReplay;
  Json settings{{"task", task.name},
                {"task_sha256", task.sha256},
                {"model", info.model},
                {"weights", info.weights},
                {"fingerprint", info.fingerprint},
                {"contexts", std::move(contexts)},
                {"pool", options_.pool},
                {"documents", plan_.dataset().documents.size()},
                {"distractors", options_.distractors >= 0 ? options_.distractors : task.distractors},
                {"policy", rhapsode::to_string(options_.policy)},
                {"passages", options_.passages},
                {"best_first", options_.best_first},
                {"heed_times", options_.heed_times},
                {"budget_tokens", options_.budget_tokens},
                {"max_tokens", task.max_tokens},
                {"recall_only", replays || options_.recall_only},
                {"fidelity", options_.fidelity},
                {"seed", options_.seed},
                {"baseline", plan_.baseline()},
                {"limit", plan_.questions().size()}};
  if (replays) settings["live_budget_tokens"] = options_.live_budget_tokens;
  if (!options_.part.empty()) settings["part"] = options_.part;
  if (options_.pool_tokens > 0) settings["pool_tokens"] = options_.pool_tokens;
  const auto looks_again = [](const Context& context) { return context.again; };
  if (std::any_of(plan_.contexts().begin(), plan_.contexts().end(), looks_again)) {
    const RerouteOptions& again = options_.reroute;
    settings["reroute"] = {{"every_tokens", again.every_tokens},
                           {"sentences", again.sentences || !again.on()},
                           {"entropy", again.entropy},
                           {"attention", again.attention},
                           {"most", again.most},
                           {"passages", again.passages}};
  }
  return settings;
}

Status Evaluation::run(ResultsFile& results,
                       const std::function<bool(const EvaluationProgress&)>& on_progress) {
  EvaluationProgress progress;
  progress.total = static_cast<int>(plan_.questions().size() * plan_.contexts().size());
  int failures = 0;  // in a row
  for (const int number : plan_.questions()) {
    const Question& question = plan_.question(number);
    kept_ = {&question, std::nullopt, {}, {}};
    for (const Context& context : plan_.contexts()) {
      progress.question = &question;
      progress.context = context;
      Record key;
      key.group = question.group;
      key.id = question.id;
      key.context = to_string(context);
      if (!results.is_done(key.key())) {
        if (on_progress && !on_progress(progress)) {
          return make_error(ErrorKind::kCancelled, "stopped after {} of {}; --resume goes on", progress.done,
                            progress.total);
        }
        const Record record = ask(question, context);
        failures = record.error.empty() ? 0 : failures + 1;
        RH_TRY_STATUS(results.append(record));
        if (failures == kMostFailures) {
          return make_error(
              ErrorKind::kInternal,
              "{} questions in a row failed, the last because {}; what was measured is kept, and "
              "--resume goes on with it",
              failures, record.error);
        }
      }
      ++progress.done;
    }
  }
  if (on_progress) on_progress(progress);
  return {};
}

Record Evaluation::ask(const Question& question, const Context& context) {
  if (kept_.question != &question) kept_ = {&question, std::nullopt, {}, {}};
  Record record;
  record.group = question.group;
  record.id = question.id;
  record.type = question.type;
  record.context = to_string(context);
  record.question = question.text;
  record.answers = question.answers;
  const Status status = measure(question, context, record);
  if (!status.ok()) record.error = status.error().message;
  return record;
}

Status Evaluation::measure(const Question& question, const Context& context, Record& record) {
  if (is_searched(context)) RH_TRY_STATUS(rank(question, context, record));
  if (options_.recall_only || plan_.task().kind == TaskKind::kReplay) return {};
  RH_TRY(ReadRequest request, request_for(question, context, record));
  RH_TRY_STATUS(answer(request, context, question, record));
  if (!question.answers.empty()) score_text(question, record);
  if (plan_.task().cite) score_citations(question, record);
  if (!options_.fidelity) return {};
  if (is_searched(context)) {
    request.places.emplace();
    for (const RankedPassage& passage : record.read) request.places->push_back(passage.passage.span);
  }
  return score_fidelity(std::move(request), context, question, record);
}

Result<ReadRequest> Evaluation::request_for(const Question& question, const Context& context,
                                            Record& record) {
  ReadRequest request;
  request.question = question.text;
  request.closed = context.kind == Context::Kind::kClosed;
  request.policy = policy_of(context, options_);
  request.blend = {context.selector, context.percent / 100, context.rounds, options_.seed};
  request.most_passages = options_.passages;
  request.best_first = options_.best_first;
  request.budget_tokens = options_.budget_tokens;
  request.max_tokens = question.answer_tokens > 0 ? question.answer_tokens : plan_.task().max_tokens;
  request.cite = plan_.task().cite;
  if (context.kind == Context::Kind::kGold) request.places = plan_.gold_places(question);
  if (context.kind == Context::Kind::kOwn) request.places = plan_.own_places(question);
  if (context.again) {
    request.signal = signal_of(context);
    request.links = context.links;
    request.reroute = options_.reroute;
    if (!request.reroute.on()) request.reroute.sentences = true;
    return request;
  }
  if (is_searched(context) && (context.kind != Context::Kind::kRouted || context.links)) {
    request.places.emplace();
    for (const RankedPassage& passage : record.ranked) {
      if (static_cast<int>(request.places->size()) == options_.passages) break;
      const auto at = options_.best_first ? request.places->end() : request.places->begin();
      request.places->insert(at, passage.passage.span);
    }
  }
  if (request.places && request.places->empty()) {
    return make_error(ErrorKind::kNotFound, "question {} has nothing to read in context {}", question.id,
                      to_string(context));
  }
  return request;
}

Status Evaluation::rank(const Question& question, const Context& context, Record& record) {
  const std::vector<int>& at = plan_.task().recall_at;
  const int deepest = std::max({at.back(), options_.passages, options_.depth});
  // Several passages may be one hit: a few more than asked for.
  const int passages = plan_.task().unit == RankUnit::kDocument ? 2 * deepest : deepest;
  std::vector<PlacedPassage> found;
  if (context.kind == Context::Kind::kMessages) {
    RH_TRY(found, rank_messages(question, passages));
  } else {
    RH_TRY(found, subject_.rank(question.text,
                                {signal_of(context), context.links, passages, question.conversation}));
  }
  record.ranked = placed(question, found);
  if (question.gold.empty()) return {};
  std::vector<std::vector<int>> hits;
  // The gold of all passages of one document counts for its one hit.
  for (const RankedPassage& hit : by_unit(record.ranked, plan_.task().unit)) {
    hits.push_back(plan_.task().unit == RankUnit::kPassage
                       ? hit.gold
                       : Plan::gold_in(question, Span{hit.passage.span.document}));
  }
  const int golds = record.golds = static_cast<int>(question.gold.size());
  for (const int k : at) {
    const double recall = recall_at(hits, golds, k);
    record.scores[fmt::format("recall@{}", k)] = recall;
    record.scores[fmt::format("all_gold@{}", k)] = recall == 1 ? 1 : 0;
  }
  return {};
}

Result<std::vector<PlacedPassage>> Evaluation::rank_messages(const Question& question, int most) {
  const auto& conversations = plan_.dataset().conversations;
  if (question.conversation < 0 || static_cast<size_t>(question.conversation) >= conversations.size()) {
    return make_error(ErrorKind::kInvalidArgument, "question {} is not about a conversation", question.id);
  }
  const auto& messages = conversations[static_cast<size_t>(question.conversation)].messages;
  if (!messages_ || messages_->first != question.conversation) {
    std::vector<Document> said;
    for (const SpokenMessage& message : messages) {
      said.push_back(plan_.dataset().documents[static_cast<size_t>(message.document)]);
    }
    messages_.emplace(question.conversation, Bm25(said));
  }
  std::vector<PlacedPassage> ranked;
  for (const int number : messages_->second.best(question.text, static_cast<size_t>(most))) {
    const int document = messages[static_cast<size_t>(number)].document;
    ranked.push_back({Span{document}, "", "", 0, {}});
  }
  return ranked;
}

Status Evaluation::warm(const ReadRequest& request, const Record& record) {
  if (request.places) return subject_.warm(*request.places);
  std::vector<Span> likely;  // to be routed to: the search has just found them
  for (const RankedPassage& passage : record.ranked) {
    if (static_cast<int>(likely.size()) == options_.passages) break;
    likely.push_back(passage.passage.span);
  }
  return subject_.warm(likely);
}

Status Evaluation::answer(const ReadRequest& request, const Context& context, const Question& question,
                          Record& record) {
  // Citing reads stored KV whatever the answer was read from.
  const bool reads_stored = request.reads_stored() || (request.cite && !request.closed);
  if (reads_stored) RH_TRY_STATUS(warm(request, record));
  RH_TRY(record.reply, subject_.answer(request));
  record.answered = true;
  record.prediction = answer_of_reply(record.reply.text, plan_.task().answer_mark);
  record.read = placed(question, record.reply.passages);
  // An empty reply has no first token.
  if (record.reply.timing.ttft_ms > 0) record.scores["ttft_ms"] = record.reply.timing.ttft_ms;
  record.scores["tokens_read"] = record.reply.usage.memory_tokens_read;
  record.scores["evaluated_tokens"] = record.reply.usage.evaluated_tokens;
  record.scores["total_ms"] = record.reply.timing.total_ms;
  if (context.again) {
    record.scores["reroutings"] = record.reply.usage.reroutings;
    record.scores["joined_passages"] = record.reply.usage.joined_passages;
    record.scores["probe_tokens"] = record.reply.usage.probe_tokens;
  }
  if (record.reply.usage.memory_tokens_read > 0) {
    record.scores["charged"] = record.reply.usage.charged_tokens / record.reply.usage.memory_tokens_read;
  }
  if (!question.gold.empty()) record.scores["gold_read"] = share_of_gold(record.read, question);
  if (context == Context::kFull) {
    kept_.full_ttft_ms = record.reply.timing.ttft_ms;
    kept_.full_reply = record.reply.text;
  }
  return {};
}

void Evaluation::score_text(const Question& question, Record& record) {
  for (const std::string& metric : plan_.task().metrics) {
    if (metric == "stale") {
      // Of replies that name some value that was ever right.
      const auto stale = stale_answer(record.prediction, question.answers, question.stale);
      if (stale) record.scores["stale"] = *stale;
      continue;
    }
    double& score = record.scores[metric];
    if (metric == "em") score = exact_match(record.prediction, question.answers);
    if (metric == "f1") score = token_f1(record.prediction, question.answers);
    if (metric == "subspan") score = subspan_match(record.reply.text, question.answers);
    if (metric == "values") score = value_recall(record.reply.text, question.values);
    if (metric == "cacheblend_f1") score_cacheblend(question, record);
  }
}

void Evaluation::score_cacheblend(const Question& question, Record& record) {
  double best = 0;
  const auto predicted = subject_.tokenize(normalise_answer(cacheblend_answer(record.reply.text)));
  for (const std::string& answer : question.answers) {
    const auto gold = subject_.tokenize(normalise_answer(answer));
    if (predicted.ok() && gold.ok()) best = std::max(best, id_f1(*predicted, *gold));
  }
  record.scores["cacheblend_f1"] = best;
}

void Evaluation::score_citations(const Question& question, Record& record) {
  record.scores["cite_ms"] = record.reply.timing.cite_ms;
  if (kept_.full_ttft_ms && *kept_.full_ttft_ms > 0) {
    record.scores["cite_share"] = record.reply.timing.cite_ms / *kept_.full_ttft_ms;
  }
  // A citation of a wrong answer is neither right nor wrong.
  if (exact_match(record.prediction, question.answers) == 0) return;
  std::optional<CitedText> cited;
  if (!record.reply.citations.empty()) {
    const PlacedCitation& first = record.reply.citations.front();
    cited = CitedText{first.quote, first.span};
  }
  const std::optional<CitedText> plain = first_sentence_with(record.reply.passages, record.prediction);
  record.scores["cited"] = cited ? subspan_match(cited->text, question.answers) : 0;
  record.scores["cited_gold"] = cited && !Plan::gold_in(question, cited->span).empty() ? 1 : 0;
  record.scores["first_sentence"] = plain ? subspan_match(plain->text, question.answers) : 0;
  record.scores["first_sentence_gold"] = plain && !Plan::gold_in(question, plain->span).empty() ? 1 : 0;
}

// Full attention over these places, as text.
Result<ScoredAnswer> Evaluation::full_score(const ReadRequest& request, const std::vector<Span>& places,
                                            const ScoredText& text) {
  for (const auto& [known, scored] : kept_.full_scores) {
    if (known == places) return scored;
  }
  ReadRequest full = request;
  full.closed = false;
  full.policy = ReadPolicy::kFull;
  full.places = places;
  RH_TRY(ScoredAnswer scored, subject_.score(full, text.text, text.most_tokens));
  kept_.full_scores.emplace_back(places, scored);
  return scored;
}

// What likelihoods are compared over: the gold answer, or, of questions that have none, what full attention
// said.
ScoredText Evaluation::scored_text(const Question& question) const {
  if (!question.answers.empty()) return {question.answers.front(), kMostScoredTokens, ""};
  return {kept_.full_reply, question.answer_tokens, "long_"};
}

Status Evaluation::score_fidelity(ReadRequest request, const Context& context, const Question& question,
                                  Record& record) {
  const ScoredText text = scored_text(question);
  if (text.text.empty()) return {};
  RH_TRY(ScoredAnswer scored, subject_.score(request, text.text, text.most_tokens));
  const size_t tokens = scored.tokens.size();
  if (tokens == 0) return {};
  double nll = 0;
  for (size_t t = 0; t < tokens; ++t) nll -= scored.row(t)[static_cast<size_t>(scored.tokens[t])];
  record.scores[text.prefix + "nll"] = nll / static_cast<double>(tokens);
  const std::optional<std::vector<Span>> compared_with =
      is_searched(context) ? request.places : plan_.own_places(question);
  if (!request.closed && request.policy == ReadPolicy::kFull && request.places == compared_with) {
    kept_.full_scores.emplace_back(*request.places, std::move(scored));
    return {};
  }
  const auto& contexts = plan_.task().contexts;
  if (std::find(contexts.begin(), contexts.end(), Context::kFull) == contexts.end()) return {};
  RH_TRY(const ScoredAnswer full, full_score(request, *compared_with, text));
  if (full.tokens != scored.tokens || full.vocabulary != scored.vocabulary) {
    return make_error(ErrorKind::kInternal, "two scores of one answer differ in their tokens");
  }
  compare(full, scored, text.prefix, record);
  return {};
}

void Evaluation::compare(const ScoredAnswer& full, const ScoredAnswer& scored, const std::string& prefix,
                         Record& record) {
  const size_t tokens = scored.tokens.size();
  double divergence = 0, agreement = 0;
  size_t first_divergence = tokens;
  for (size_t t = 0; t < tokens; ++t) {
    divergence += kl_divergence(full.row(t), scored.row(t));
    const bool agrees = argmax(full.row(t)) == argmax(scored.row(t));
    agreement += agrees;
    if (!agrees) first_divergence = std::min(first_divergence, t);
  }
  record.scores[prefix + "kl"] = divergence / static_cast<double>(tokens);
  record.scores[prefix + "top1"] = agreement / static_cast<double>(tokens);
  // Tokens that greedy decoding would say alike.
  if (!prefix.empty()) record.scores["first_divergence"] = static_cast<double>(first_divergence);
}

std::vector<RankedPassage> Evaluation::placed(const Question& question,
                                              const std::vector<PlacedPassage>& passages) const {
  std::vector<RankedPassage> out;
  for (const PlacedPassage& passage : passages) {
    out.push_back({passage, Plan::gold_in(question, passage.span)});
  }
  return out;
}

}  // namespace rhapsode::eval
