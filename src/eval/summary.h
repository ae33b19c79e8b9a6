// What a results file comes to: means with bootstrap intervals, by group and context, and paired differences.
//
// A metric counts over the questions that have it; a difference over those that both sides have. Groups come
// in the file's order, "all" last where there are several. Threads: any. Errors: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "eval/bootstrap.h"
#include "eval/record.h"

namespace rhapsode::eval {

struct ContextSummary {
  std::string context;
  int questions = 0;
  int errors = 0;
  std::map<std::string, Interval> metrics;
  std::map<std::string, Interval> differences;  // from the baseline, paired; empty for the baseline itself
};

struct GroupSummary {
  std::string group;
  std::vector<ContextSummary> contexts;
};

struct Summary {
  std::string baseline;  // a context; empty: none
  std::vector<GroupSummary> groups;
  std::map<std::string, std::string> failures;  // of each context, the first error
};

Summary summarise(const std::vector<Record>& records, const std::string& baseline, uint64_t seed);

// The contexts of b against the same ones of a, on the questions that both hold: differences are b - a.
Summary compare_results(const std::vector<Record>& a, const std::vector<Record>& b, uint64_t seed);

// Metrics in the order in which people read them, the unknown last.
std::vector<std::string> ordered_metrics(const GroupSummary& group);

Json to_json(const Summary& summary);

}  // namespace rhapsode::eval
