// One line of a results file: one question in one context, with everything that was measured.
//
// JSON with stable snake_case names (docs/guide/eval.md); numbers that are not finite are null. Threads:
// plain values.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"
#include "eval/subject.h"

namespace rhapsode::eval {

using Json = nlohmann::ordered_json;

struct RankedPassage {
  PlacedPassage passage;
  std::vector<int> gold;  // numbers of the evidence that it holds
};

struct Record {
  std::string group;
  std::string id;
  std::string type;
  std::string context;
  std::string question;
  std::vector<std::string> answers;
  std::string prediction;                // what was scored of the reply
  std::map<std::string, double> scores;  // "em", "f1", "nll", "recall@5", "ttft_ms", ...
  std::vector<RankedPassage> ranked;     // best first, when something was searched
  int golds = 0;                         // pieces of evidence that the question has
  std::vector<RankedPassage> read;       // in reading order
  Reply reply;
  bool answered = false;  // else only ranked
  std::string error;      // not empty: nothing else was measured

  std::string key() const { return group + '\t' + id + '\t' + context; }
};

Json to_json(const Record& record);
// What summaries need of a line: group, id, context, scores and error.
Result<Record> parse_record(const Json& json);

}  // namespace rhapsode::eval
