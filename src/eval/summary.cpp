#include "eval/summary.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "eval/context.h"

namespace rhapsode::eval {
namespace {

constexpr std::array<std::string_view, 9> kFirst{"em",  "f1", "subspan", "values",   "cacheblend_f1",
                                                 "nll", "kl", "top1",    "gold_read"};
constexpr std::array<std::string_view, 12> kLast{
    "cited",       "cited_gold", "first_sentence",  "first_sentence_gold", "ttft_ms", "total_ms",
    "tokens_read", "reroutings", "joined_passages", "probe_tokens",        "cite_ms", "cite_share"};
const std::string kAll = "all";

// By metric, by question.
using Values = std::map<std::string, std::map<std::string, double>>;

struct Cell {
  Values values;
  std::set<std::string> questions;
  int errors = 0;
};
using Cells = std::map<std::string, std::map<std::string, Cell>>;  // [group][context]

void add(const Record& record, Cell& cell) {
  const std::string question = record.group + '\t' + record.id;
  if (!record.error.empty()) {
    ++cell.errors;
    return;
  }
  cell.questions.insert(question);
  for (const auto& [name, value] : record.scores) {
    if (std::isfinite(value)) cell.values[name][question] = value;
  }
}

std::vector<std::string> groups_of(const std::vector<Record>& records) {
  std::vector<std::string> groups;
  for (const Record& record : records) {
    if (std::find(groups.begin(), groups.end(), record.group) == groups.end()) groups.push_back(record.group);
  }
  if (groups.size() > 1) groups.push_back(kAll);
  return groups;
}

Cells cells_of(const std::vector<Record>& records) {
  Cells cells;
  for (const Record& record : records) {
    add(record, cells[record.group][record.context]);
    add(record, cells[kAll][record.context]);
  }
  return cells;
}

std::map<std::string, Interval> intervals(const Values& values, uint64_t seed) {
  std::map<std::string, Interval> out;
  for (const auto& [name, by_question] : values) {
    std::vector<double> list;
    for (const auto& [question, value] : by_question) list.push_back(value);
    out[name] = bootstrap_mean(list, seed);
  }
  return out;
}

std::map<std::string, Interval> differences(const Values& values, const Values& baseline, uint64_t seed) {
  std::map<std::string, Interval> out;
  for (const auto& [name, by_question] : values) {
    const auto base = baseline.find(name);
    if (base == baseline.end()) continue;
    std::vector<double> ours, theirs;
    for (const auto& [question, value] : by_question) {
      const auto other = base->second.find(question);
      if (other == base->second.end()) continue;
      ours.push_back(value);
      theirs.push_back(other->second);
    }
    if (!ours.empty()) out[name] = bootstrap_difference(ours, theirs, seed);
  }
  return out;
}

// Contexts of a cell map in the order in which they run; names that are none come last.
std::vector<std::string> ordered_contexts(const std::map<std::string, Cell>& cells) {
  std::vector<std::string> names;
  for (const auto& [name, cell] : cells) names.push_back(name);
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    const auto first = context_named(a), second = context_named(b);
    if (!first || !second) return first.has_value() && !second.has_value();
    return runs_before(*first, *second);
  });
  return names;
}

// Names come from a file and may be anything.
int number_behind(const std::string& name, size_t at) {
  int number = 0;
  std::from_chars(name.data() + at + 1, name.data() + name.size(), number);
  return number;
}

Json interval_json(const Interval& interval) {
  return {{"mean", interval.mean}, {"low", interval.low}, {"high", interval.high}, {"count", interval.count}};
}

Json intervals_json(const std::map<std::string, Interval>& intervals) {
  Json json = Json::object();
  for (const auto& [name, interval] : intervals) json[name] = interval_json(interval);
  return json;
}

}  // namespace

Summary summarise(const std::vector<Record>& records, const std::string& baseline, uint64_t seed) {
  Summary summary{baseline, {}, {}};
  for (const Record& record : records) {
    if (!record.error.empty()) summary.failures.try_emplace(record.context, record.error);
  }
  const Cells cells = cells_of(records);
  for (const std::string& name : groups_of(records)) {
    GroupSummary group{name, {}};
    const auto& contexts = cells.at(name);
    const auto base = contexts.find(baseline);
    for (const std::string& context : ordered_contexts(contexts)) {
      const Cell& cell = contexts.at(context);
      ContextSummary row{
          context, static_cast<int>(cell.questions.size()), cell.errors, intervals(cell.values, seed), {}};
      if (base != contexts.end() && context != baseline) {
        row.differences = differences(cell.values, base->second.values, seed);
      }
      group.contexts.push_back(std::move(row));
    }
    summary.groups.push_back(std::move(group));
  }
  return summary;
}

Summary compare_results(const std::vector<Record>& a, const std::vector<Record>& b, uint64_t seed) {
  Summary summary;
  const Cells before = cells_of(a);
  const Cells after = cells_of(b);
  for (const std::string& name : groups_of(b)) {
    const auto old_group = before.find(name);
    if (old_group == before.end()) continue;
    GroupSummary group{name, {}};
    for (const std::string& context : ordered_contexts(after.at(name))) {
      const auto old_cell = old_group->second.find(context);
      if (old_cell == old_group->second.end()) continue;
      const Cell& cell = after.at(name).at(context);
      ContextSummary row{context, 0, cell.errors, intervals(cell.values, seed),
                         differences(cell.values, old_cell->second.values, seed)};
      for (const auto& [metric, interval] : row.differences) {
        row.questions = std::max(row.questions, interval.count);
      }
      group.contexts.push_back(std::move(row));
    }
    if (!group.contexts.empty()) summary.groups.push_back(std::move(group));
  }
  return summary;
}

std::vector<std::string> ordered_metrics(const GroupSummary& group) {
  std::set<std::string> there;
  for (const ContextSummary& context : group.contexts) {
    for (const auto& [name, interval] : context.metrics) there.insert(name);
  }
  std::vector<std::string> names;
  const auto take = [&](std::string_view name) {
    if (there.erase(std::string(name)) > 0) names.emplace_back(name);
  };
  for (const std::string_view name : kFirst) take(name);
  std::vector<std::string> recalls;
  for (const std::string& name : there) {
    if (name.find('@') != std::string::npos) recalls.push_back(name);
  }
  // By what is counted, then by k as a number.
  std::sort(recalls.begin(), recalls.end(), [](const std::string& a, const std::string& b) {
    const size_t at_a = a.find('@'), at_b = b.find('@');
    const int by_name = a.compare(0, at_a, b, 0, at_b);
    return by_name != 0 ? by_name > 0 : number_behind(a, at_a) < number_behind(b, at_b);
  });
  for (const std::string& name : recalls) take(name);
  for (const std::string_view name : kLast) take(name);
  names.insert(names.end(), there.begin(), there.end());
  return names;
}

Json to_json(const Summary& summary) {
  Json json{{"baseline", summary.baseline.empty() ? Json(nullptr) : Json(summary.baseline)}};
  Json& groups = json["groups"] = Json::array();
  for (const GroupSummary& group : summary.groups) {
    Json contexts = Json::array();
    for (const ContextSummary& context : group.contexts) {
      contexts.push_back({{"context", context.context},
                          {"questions", context.questions},
                          {"errors", context.errors},
                          {"metrics", intervals_json(context.metrics)},
                          {"differences", intervals_json(context.differences)}});
    }
    groups.push_back({{"group", group.group}, {"contexts", std::move(contexts)}});
  }
  json["failures"] = summary.failures;
  return json;
}

}  // namespace rhapsode::eval
