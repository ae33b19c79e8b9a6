#include "engine/hopping.h"

#include <algorithm>

#include "recall/abstention.h"
#include "text/passage.h"
#include "text/search_terms.h"

namespace rhapsode {

namespace {

constexpr int kMostHops = 8;
constexpr int kPartialTokens = 32;
constexpr size_t kMostEvidenceBytes = 400;

// The sentence that shares most terms with the question, the first of several.
std::string evidence_in(const FoundPassage& passage, const std::vector<std::string>& terms) {
  const std::string_view text = passage.text;
  const std::vector<size_t> starts = text::sentence_starts(text, text::DocumentKind::kPlain);
  std::string best;
  std::ptrdiff_t most = -1;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    const std::string_view sentence = text.substr(starts[i], end - starts[i]);
    if (sentence.size() > kMostEvidenceBytes || sentence.find_first_not_of(" \t\r\n#") == std::string::npos)
      continue;
    const std::vector<std::string> said = text::search_terms(sentence);
    const auto shared = std::count_if(terms.begin(), terms.end(), [&](const std::string& term) {
      return std::find(said.begin(), said.end(), term) != said.end();
    });
    // Of a heading the name alone says nothing new.
    if (shared <= most || sentence.starts_with('#')) continue;
    most = shared;
    best = sentence;
  }
  while (!best.empty() && (best.back() == '\n' || best.back() == ' ')) best.pop_back();
  std::replace(best.begin(), best.end(), '\n', ' ');
  return best;
}

std::string next_query(const std::string& question, const Hop& hop, const std::vector<std::string>& terms) {
  std::string query = question;
  const std::string evidence =
      hop.passages.empty() ? std::string() : evidence_in(hop.passages.front(), terms);
  if (!evidence.empty()) query += " " + evidence;
  if (!hop.answer.empty() && !recall::is_refusal(hop.answer)) query += " " + hop.answer;
  return query;
}

}  // namespace

Result<Hop> Memory::Hopping::find(const std::string& query, const Impl::QuestionTimes& times) {
  const int64_t begin = now_ns();
  Hop hop{query, {}, {}};
  const int share = (options_.most_passages + options_.hops - 1) / options_.hops;
  recall::RouteOptions route_options = Impl::route_options(times);
  // Earlier hops' passages are found again.
  route_options.count = options_.most_passages + static_cast<int>(taken_.size());
  RH_TRY(const RoutePlan plan,
         memory_.route_plan({options_.judge, options_.chain, options_.links}, options_.rank, true));
  RH_TRY(const recall::Route route, memory_.route(query, route_options, plan));
  probe_tokens_ += route.probe_tokens;
  cold_candidates_ += route.cold_candidates;
  RH_TRY(std::vector<FoundPassage> found, memory_.found(route.ranked, times));
  TracedRouting& routing = routings_.emplace_back();
  routing.cause = routings_.size() > 1 ? RouteCause::kHop : RouteCause::kQuestion;
  routing.query = query;
  if (options_.trace) routing.found = found;
  for (FoundPassage& passage : found) {
    const int64_t id = passage.passage.id;
    const bool known = std::any_of(taken_.begin(), taken_.end(),
                                   [&](const FoundPassage& other) { return other.passage.id == id; });
    const auto added = static_cast<int>(hop.passages.size());
    if (added == share || static_cast<int>(taken_.size()) + added == options_.most_passages) break;
    if (known || taken_tokens_ + passage.passage.tokens > options_.budget_tokens) continue;
    taken_tokens_ += passage.passage.tokens;
    hop.passages.push_back(std::move(passage));
  }
  taken_.insert(taken_.end(), hop.passages.rbegin(), hop.passages.rend());
  routing.probe_tokens = route.probe_tokens;
  routing.route_ms = ms_between(begin, now_ns());
  route_ms_ += routing.route_ms;
  for (auto passage = hop.passages.rbegin(); passage != hop.passages.rend(); ++passage) {
    routing.joined.push_back(passage->passage.id);
  }
  return hop;
}

Result<Answer> Memory::Hopping::answer(bool last) {
  AskOptions asked = options_;
  asked.hops = 1;
  for (const FoundPassage& passage : taken_) asked.passages.push_back(passage.passage.id);
  if (!last) {
    asked.max_tokens = std::min(asked.max_tokens, kPartialTokens);
    asked.sampling = {};
    asked.sampling.temperature = 0;
    asked.cite = false;
    asked.trace = false;
    asked.begin.clear();
    asked.self_check = 0;
    asked.on_text = nullptr;
  }
  return Asking(memory_, asked).run();
}

bool Memory::Hopping::is_unfit() const {
  if (!options_.abstain || !options_.history.empty()) return false;
  std::vector<std::string> texts;
  for (const FoundPassage& passage : taken_) texts.push_back(passage.passage.header + "\n" + passage.text);
  return texts.empty() || recall::is_unfit(recall::coverage_of(terms_, texts));
}

Result<Answer> Memory::Hopping::run() {
  if (options_.hops > kMostHops || !options_.passages.empty() || options_.most_passages < 1) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} hops have no meaning: at most {}, over passages that are searched for",
                      options_.hops, kMostHops);
  }
  RH_TRY(const Impl::QuestionTimes times,
         memory_.question_times(options_.question, options_.filter, options_.heed_times));
  terms_ = text::question_terms(options_.question);
  std::vector<Hop> hops;
  std::string query = options_.question;
  AskUsage spent;
  Answer answer;
  for (int number = 1; number <= options_.hops; ++number) {
    RH_TRY(Hop hop, find(query, times));
    const bool last = number == options_.hops;
    if (taken_.empty() || (last && is_unfit())) {
      hops.push_back(std::move(hop));
      return abstained(std::move(hops));
    }
    RH_TRY(answer, this->answer(last));
    hop.answer = answer.text;
    if (!last) {
      spent.probe_tokens += answer.usage.evaluated_tokens + answer.usage.probe_tokens;
      spent.charged_tokens += answer.usage.charged_tokens;
      query = next_query(options_.question, hop, terms_);
    }
    hops.push_back(std::move(hop));
    if (answer.finish == FinishReason::kCancelled) break;
  }
  answer.usage.probe_tokens += spent.probe_tokens + probe_tokens_;
  answer.usage.charged_tokens += spent.charged_tokens;
  answer.usage.cold_candidates += cold_candidates_;
  answer.timing.route_ms += route_ms_;
  if (answer.timing.ttft_ms > 0)
    answer.timing.ttft_ms += ms_between(begin_ns_, now_ns()) - answer.timing.total_ms;
  answer.timing.total_ms = ms_between(begin_ns_, now_ns());
  // What found each passage is known here, not where it was read.
  for (FoundPassage& read : answer.passages) {
    for (const FoundPassage& found : taken_) {
      if (found.passage.id != read.passage.id) continue;
      const PassageInfo info = read.passage;
      read = found;
      read.passage = info;
    }
  }
  if (answer.trace) answer.trace = traced(std::move(*answer.trace));
  answer.hops = std::move(hops);
  return answer;
}

AnswerTrace Memory::Hopping::traced(AnswerTrace trace) {
  // The last hop's answer was told over passages that were given to it: what found them stands here.
  TracedRouting& last = routings_.back();
  const TracedRouting& read = trace.routings.front();
  last.places = read.places;
  last.evaluated_tokens = read.evaluated_tokens;
  last.read_ms = read.read_ms;
  trace.routings = std::move(routings_);
  for (TracedToken& token : trace.tokens) token.routing = static_cast<int>(trace.routings.size()) - 1;
  return trace;
}

Answer Memory::Hopping::abstained(std::vector<Hop> hops) {
  Answer answer;
  answer.abstained = true;
  answer.passages = taken_;
  answer.policy_reason = "the memory holds nothing that fits the question";
  answer.text = "The memory holds nothing about this.";
  if (options_.on_text) options_.on_text(answer.text);
  answer.usage.probe_tokens = probe_tokens_;
  answer.usage.cold_candidates = cold_candidates_;
  answer.timing.route_ms = route_ms_;
  answer.timing.ttft_ms = answer.timing.total_ms = ms_between(begin_ns_, now_ns());
  if (options_.trace) {
    answer.trace.emplace().routings = std::move(routings_);
  }
  answer.hops = std::move(hops);
  return answer;
}

}  // namespace rhapsode
