// A task: which data, asked how, measured by what. One small TOML file each (eval/tasks/*.toml).
//
// The tasks of the tree are part of the library; others are named by the path of their file. Errors:
// kInvalidArgument with file, key and what is allowed; kNotFound for a name that is none. Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "eval/context.h"
#include "eval/long_script.h"

namespace rhapsode::eval {

// What counts as one hit of a ranking.
enum class RankUnit : uint8_t {
  kDocument,  // passages of one document are one hit
  kPassage,
};

enum class TaskKind : uint8_t {
  kQuestions,  // documents are added to a memory, questions asked
  kReplay,     // conversations are replayed into one, and what was said is ranked for each question
  kTalk,       // they are joined into one long conversation, with facts to be remembered
};

// One data set of a task, or one source of filler.
struct DataPart {
  std::string group;   // the reader's name unless given
  std::string reader;  // of reader_names()
  std::filesystem::path path;
  std::map<std::string, std::string> options;  // of the reader: "last" = "655"
};

struct Task {
  std::string name;
  TaskKind kind = TaskKind::kQuestions;
  std::string title;
  std::string instruction;  // the system turn, few-shot example included
  std::vector<DataPart> data;
  std::vector<DataPart> filler;  // documents without questions, for --pool all
  std::vector<std::string> metrics;
  std::vector<Context> contexts;          // those that mean something here
  std::vector<Context> default_contexts;  // run when none are named
  std::string baseline = "full";          // of differences, unless another is named
  RankUnit unit = RankUnit::kDocument;
  std::vector<int> recall_at{2, 5, 10};
  int max_tokens = 24;
  std::string answer_mark;  // the answer is what stands behind it in the reply; empty: the first line
  int distractors = -1;     // BM25 neighbours put beside the evidence; -1: each question's own passages
  bool cite = false;
  int limit = 0;  // questions drawn; 0: all
  uint64_t seed = 0;
  LongNumbers talk;    // of kTalk
  std::string sha256;  // of the file
};

// The metrics that a task may name: "em", "f1", "subspan", "values", "stale",
// "cacheblend_f1".
bool is_answer_metric(std::string_view name);

Result<Task> parse_task(std::string_view toml, const std::string& label);

// A task of the tree by name, or any by the path of its file (has a '/' or ends in .toml).
Result<Task> find_task(const std::string& name_or_path);
std::vector<std::string> task_names();

}  // namespace rhapsode::eval
