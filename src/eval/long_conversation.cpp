#include "eval/long_conversation.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "eval/metrics.h"

namespace rhapsode::eval {
namespace {

const std::string kContext = "conversation";
constexpr double kMegabyte = 1 << 20;

double quantile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::ceil(share * last))];
}

// Instead of saying that nothing is known.
bool tells_value_of_another(const Script& script, int number, const std::string& reply) {
  for (size_t i = 0; i < script.facts.size(); ++i) {
    if (static_cast<int>(i) == number) continue;
    const ScriptedFact& other = script.facts[i];
    std::vector<std::string> values{other.value};
    if (!other.corrected.empty()) values.push_back(other.corrected);
    if (subspan_match(reply, values) > 0) return true;
  }
  return false;
}

}  // namespace

double median_of(std::vector<double>& values) {
  return quantile(values, 0.5);
}

double p95_of(std::vector<double>& values) {
  return quantile(values, 0.95);
}

Json talk_settings(const Task& task, const LongNumbers& numbers, const LongOptions& options,
                   const Options& asked, const SubjectInfo& info) {
  return {{"task", task.name},
          {"task_sha256", task.sha256},
          {"model", info.model},
          {"weights", info.weights},
          {"fingerprint", info.fingerprint},
          {"turns", numbers.turns},
          {"facts", numbers.facts},
          {"corrected", numbers.corrected},
          {"retracted", numbers.retracted},
          {"asked_after", numbers.asked_after},
          {"answered_every", numbers.answered_every},
          {"window", numbers.window},
          {"live_budget_tokens", asked.live_budget_tokens},
          {"budget_tokens", options.saying.budget_tokens},
          {"passages", options.saying.most_passages},
          {"policy", rhapsode::to_string(options.saying.policy)},
          {"max_tokens", options.answer_tokens},
          {"seed", asked.seed}};
}

Status LongConversation::run(ResultsFile& results,
                             const std::function<bool(size_t done, size_t total)>& on_turn) {
  const auto turns = static_cast<int>(script_.turns.size());
  int first = 0;
  for (int number = 0; number < turns; ++number) {
    if (on_turn && !on_turn(static_cast<size_t>(number), script_.turns.size())) {
      return make_error(ErrorKind::kCancelled, "stopped after {} of {} turns", number, turns);
    }
    RH_TRY_STATUS(take_turn(script_.turns[static_cast<size_t>(number)], number, results));
    if (number + 1 - first < options_.window && number + 1 < turns) continue;
    RH_TRY_STATUS(close_window(first, number, results));
    first = number + 1;
  }
  return {};
}

Status LongConversation::take_turn(const ScriptTurn& turn, int number, ResultsFile& results) {
  const int64_t begin = now_ns();
  std::optional<rhapsode::Reply> reply;
  const bool noted = turn.kind == ScriptTurn::Kind::kChat || turn.kind == ScriptTurn::Kind::kFact;
  if (noted) {
    RH_TRY_STATUS(note("user", turn.text, turn));
    RH_TRY_STATUS(note("assistant", turn.answer.empty() ? "Noted." : turn.answer, turn));
  } else {
    RH_TRY(reply, say(turn));
  }
  if (turn.kind != ScriptTurn::Kind::kAsk) RH_TRY_STATUS(remember(turn, number));
  const double spent_ms = ms_between(begin, now_ns());
  window_.total_ms += spent_ms;
  if (noted) window_.turn_ms.push_back(spent_ms);
  if (turn.kind != ScriptTurn::Kind::kAsk) return {};
  RH_TRY(Record record, judge(script_.facts[static_cast<size_t>(turn.fact)], turn.fact, *reply));
  record.question = turn.text;
  return results.append(record);
}

Status LongConversation::note(const std::string& role, const std::string& text, const ScriptTurn& turn) {
  NotedMessage message;
  message.role = role;
  message.text = text;
  message.time = turn.time;
  if (role == "user") message.speaker = turn.speaker;
  RH_TRY(const rhapsode::Reply reply, talk_.note(message));
  window_.tokens += reply.usage.message_tokens;
  return {};
}

Status LongConversation::remember(const ScriptTurn& turn, int number) {
  const int64_t begin = now_ns();
  HeardMessage heard;
  heard.text = turn.text;
  heard.speaker = turn.speaker;
  heard.stamp = turn.time;
  heard.id = fmt::format("turn-{}", number);
  RH_TRY_STATUS(talk_.remember(heard));
  window_.remember_ms.push_back(ms_between(begin, now_ns()));
  return {};
}

Result<rhapsode::Reply> LongConversation::say(const ScriptTurn& turn) {
  SayOptions saying = options_.saying;
  saying.text = turn.text;
  saying.speaker = turn.speaker;
  saying.time = turn.time;
  saying.max_tokens = options_.answer_tokens;
  RH_TRY(rhapsode::Reply reply, talk_.say(saying));
  window_.tokens += reply.usage.message_tokens + reply.usage.generated_tokens;
  window_.say_ms.push_back(reply.timing.total_ms);
  window_.route_ms.push_back(reply.timing.route_ms);
  return reply;
}

Result<Record> LongConversation::judge(const ScriptedFact& fact, int number, const rhapsode::Reply& reply) {
  Record record;
  record.group = "facts";
  record.id = fmt::format("{:03}", number);
  record.type = to_string(fact.fate);
  record.context = kContext;
  const bool retracted = fact.fate == FactFate::kRetracted;
  const std::vector<std::string> old{fact.value};
  const std::vector<std::string> now{fact.corrected.empty() ? fact.value : fact.corrected};
  if (!retracted) record.answers = now;
  record.reply.text = record.prediction = reply.text;
  record.reply.timing = reply.timing;
  record.reply.policy = rhapsode::to_string(reply.policy);
  record.answered = true;
  const bool tells_old = subspan_match(reply.text, old) > 0;
  const bool tells_now = !retracted && subspan_match(reply.text, now) > 0;
  record.scores["right"] = retracted ? !tells_old : tells_now;
  if (retracted) {
    record.scores["retracted_told"] = tells_old;
    record.scores["other_told"] = tells_value_of_another(script_, number, reply.text);
  }
  if (fact.fate == FactFate::kCorrected) record.scores["old_told"] = tells_old && !tells_now;
  double found = 0;
  for (const RecalledPassage& recalled : reply.recalled) {
    found = std::max(found, subspan_match(recalled.found.text, retracted ? old : now));
    record.read.push_back(
        {{{}, recalled.found.passage.source, recalled.found.text, recalled.found.score, {}}, {}});
  }
  record.scores[retracted ? "retracted_found" : "found"] = found;
  RH_TRY(const std::vector<FactInfo> facts, talk_.facts());
  const bool recorded = std::any_of(facts.begin(), facts.end(), [&](const FactInfo& known) {
    return known.subject == fact.person && known.value == (retracted ? old : now).front();
  });
  record.scores["recorded"] = retracted ? !recorded : recorded;
  return record;
}

Status LongConversation::close_window(int first, int last, ResultsFile& results) {
  Record record;
  record.group = "turns";
  record.id = fmt::format("{:05}-{:05}", first + 1, last + 1);
  record.context = kContext;
  record.scores["turn_ms"] = median_of(window_.turn_ms);
  record.scores["turn_p95_ms"] = p95_of(window_.turn_ms);
  if (!window_.say_ms.empty()) {
    record.scores["say_ms"] = median_of(window_.say_ms);
    record.scores["say_p95_ms"] = p95_of(window_.say_ms);
    record.scores["route_ms"] = median_of(window_.route_ms);
    record.scores["route_p95_ms"] = p95_of(window_.route_ms);
  }
  record.scores["remember_ms"] = median_of(window_.remember_ms);
  record.scores["tokens"] = static_cast<double>(window_.tokens);
  const double thousands = std::max(static_cast<double>(window_.tokens) / 1000, 1e-3);
  record.scores["ms_per_1000_tokens"] = window_.total_ms / thousands;
  const uint64_t resident = talk_.resident_bytes();
  if (resident > 0) record.scores["resident_mb"] = static_cast<double>(resident) / kMegabyte;
  window_ = {};
  return results.append(record);
}

}  // namespace rhapsode::eval
