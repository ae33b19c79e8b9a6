// Routing within one answer: what has been said becomes part of the query.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/asking.h"

namespace rhapsode {

namespace {

// Of the answer so far, what a query holds: its end.
constexpr size_t kMostSaidBytes = 1000;

std::string end_of(const std::string& said) {
  if (said.size() <= kMostSaidBytes) return said;
  // From a word on, so that no character is cut.
  const size_t space = said.find(' ', said.size() - kMostSaidBytes);
  return space == std::string::npos ? "" : said.substr(space + 1);
}

bool holds(const std::vector<FoundPassage>& passages, int64_t id) {
  return std::any_of(passages.begin(), passages.end(),
                     [&](const FoundPassage& one) { return one.passage.id == id; });
}

}  // namespace

void Memory::Asking::route_again(State& state) {
  if (const Status status = search_again(state); !status.ok()) {
    std::string problem = "looking for passages within the answer failed, so it went on with what it had: " +
                          status.error().message;
    if (problems_.empty() || problems_.back() != problem) problems_.push_back(std::move(problem));
  }
}

Result<bool> Memory::Asking::wants_search(const State& state, TracedRouting& routing) {
  if (routing.cause == RouteCause::kEntropy) routing.signal = watch_.entropy();
  if (routing.cause != RouteCause::kAttention) return true;
  RH_TRY_STATUS(measure(state, state.response.tokens));
  double share = 0;
  const auto last = std::min<size_t>(AnswerWatch::kAttentionTokens, trace_.tokens.size());
  for (auto token = trace_.tokens.end() - static_cast<int64_t>(last); token != trace_.tokens.end(); ++token) {
    share += std::accumulate(token->passages.begin(), token->passages.end(), 0.0);
  }
  routing.signal = watch_.attention_part(share / static_cast<double>(std::max<size_t>(1, last)));
  return watch_.attention_fell(routing.signal);
}

Status Memory::Asking::search_again(State& state) {
  const int64_t begin = now_ns();
  const int probed = answer_.usage.probe_tokens;
  TracedRouting routing;
  routing.cause = watch_.cause();
  routing.token = static_cast<int>(state.response.tokens.size());
  RH_TRY(const bool wanted, wants_search(state, routing));
  if (!wanted) return {};
  watch_.routed();
  ++answer_.usage.reroutings;
  routing.query = question_ + " " + end_of(begin_text_ + state.response.text);
  trace_.routings.push_back(std::move(routing));
  TracedRouting& noted = trace_.routings.back();
  const auto look = [&]() -> Status {
    // As many as the question was answered from: what is new has to be among the best of them.
    const int count = std::max(options_.most_passages, options_.reroute.passages + 1);
    RH_TRY(const recall::Route route, look_for(noted.query, count));
    RH_TRY(std::vector<FoundPassage> found, memory_.found(route.ranked, times_));
    if (options_.trace) noted.found = found;
    RH_TRY(Reading next, joined(state, std::move(found), trace_.routings.size() - 1));
    noted.route_ms = ms_between(begin, now_ns());
    if (next.routing == reading_.routing) return {};
    const int64_t read = now_ns();
    RH_TRY_STATUS(read_again(state, std::move(next)));
    noted.read_ms = ms_between(read, now_ns());
    return {};
  };
  const Status status = look();
  answer_.timing.route_ms += noted.route_ms;
  noted.probe_tokens = answer_.usage.probe_tokens - probed;
  if (!status.ok()) noted.problem = status.error().message;
  return status;
}

Result<Memory::Asking::Reading> Memory::Asking::joined(const State& state, std::vector<FoundPassage> found,
                                                       size_t routing) {
  Reading next;
  std::vector<FoundPassage> fresh;
  for (FoundPassage& passage : found) {
    if (static_cast<int>(fresh.size()) == options_.reroute.passages) break;
    if (!holds(reading_.passages, passage.passage.id)) fresh.push_back(std::move(passage));
  }
  std::reverse(fresh.begin(), fresh.end());
  for (FoundPassage& passage : fresh) RH_TRY_STATUS(take(std::move(passage), next));
  if (next.passages.empty()) {
    next.routing = reading_.routing;
    return next;
  }
  next.routing = routing;
  // The same room as place() gives: the answer may still become as long as it was allowed to.
  const int64_t others =
      static_cast<int64_t>(memory_.frame->prefix().size() + reading_.tail.size() + options_.begin.size()) +
      options_.max_tokens;
  const auto room = std::min<int64_t>(options_.budget_tokens, memory_.engine->context_tokens - others);
  RH_TRY_STATUS(leave(state, static_cast<int>(room), next));
  return next;
}

// Puts what is read now before the new passages, without those that got least attention where there is no
// room.
Status Memory::Asking::leave(const State& state, int room, Reading& next) {
  const size_t count = reading_.passages.size();
  std::vector<bool> stays(count, true);
  int needed = reading_.memory_tokens + next.memory_tokens;
  if (needed > room) RH_TRY_STATUS(measure(state, state.response.tokens));
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (needed > room) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return reading_.attention[a] < reading_.attention[b]; });
  }
  for (size_t n = 0; n < count && needed > room; ++n) {
    stays[order[n]] = false;
    needed -= static_cast<int>(reading_.tokens[order[n]].tokens.size());
    trace_.routings[next.routing].left.push_back(reading_.passages[order[n]].passage.id);
  }
  Reading all;
  all.routing = next.routing;
  all.joined = next.passages.size();
  const auto add = [&](const Reading& from, size_t i) {
    all.passages.push_back(from.passages[i]);
    all.kinds.push_back(from.kinds[i]);
    all.tokens.push_back(from.tokens[i]);
    all.memory_tokens += static_cast<int>(from.tokens[i].tokens.size());
  };
  for (size_t i = 0; i < count; ++i) {
    if (stays[i]) add(reading_, i);
  }
  for (size_t i = 0; i < next.passages.size(); ++i) add(next, i);
  next = std::move(all);
  return {};
}

Status Memory::Asking::read_again(State& state, Reading next) {
  const size_t fresh = next.joined;
  // The last moment to see what was looked at for the tokens chosen so far.
  if (options_.trace) RH_TRY_STATUS(measure(state, state.response.tokens));
  Reading before = std::exchange(reading_, std::move(next));
  const auto read = [&]() -> Status {
    tell_times();
    RH_TRY_STATUS(set_places());
    RH_TRY_STATUS(load());
    RH_TRY_STATUS(blend());
    return read_into(state);
  };
  if (const Status status = read(); !status.ok()) {
    trace_.routings[reading_.routing].left.clear();
    reading_ = std::move(before);
    tell_times();
    RH_TRY_STATUS(read_into(state));
    return status;
  }
  account(before, state.response.usage);
  std::vector<int32_t> tokens = prompt();
  for (const GeneratedToken& token : state.response.tokens) tokens.push_back(token.token);
  state.restart(std::move(tokens));
  trace_.tokens.resize(state.response.tokens.size());
  for (size_t i = reading_.passages.size() - fresh; i < reading_.passages.size(); ++i) note_joined(i);
  answer_.usage.joined_passages += static_cast<int>(fresh);
  return {};
}

}  // namespace rhapsode
