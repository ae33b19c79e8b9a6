// What readers build a Dataset with; internal to src/eval.
#pragma once

#include <charconv>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"
#include "eval/dataset.h"
#include "eval/task.h"

namespace rhapsode::eval {

class DatasetBuilder {
 public:
  explicit DatasetBuilder(Dataset& dataset) : dataset_(dataset) {}

  // The number of the document; one of equal title and text is used again.
  int add_document(std::string title, std::string text, std::string file_name = "");
  // A document of its own, whatever else is equal to it.
  int add_message(std::string text);
  void add_question(Question question) { dataset_.questions.push_back(std::move(question)); }
  Dataset& dataset() { return dataset_; }

 private:
  Dataset& dataset_;
  std::map<std::pair<std::string, std::string>, int> known_;
};

// A reader's options out of the task's file; the first complaint is kept, unknown keys are complaints.
class ReaderOptions {
 public:
  ReaderOptions(const DataPart& part, uint64_t seed) : part_(part), seed_(seed) {}

  int integer(const char* key, int otherwise, int low, int high);
  std::string text(const char* key, const char* otherwise);
  uint64_t seed() const { return seed_; }
  Status finish();

 private:
  const DataPart& part_;
  uint64_t seed_;
  std::set<std::string> known_;
  Status status_;
};

struct ReaderInput {
  std::filesystem::path path;  // of the file or folder
  std::string group;
  ReaderOptions& options;
};
using Reader = Status (*)(const ReaderInput& input, DatasetBuilder& builder);

Status read_musique(const ReaderInput& input, DatasetBuilder& builder);
Status read_hotpot(const ReaderInput& input, DatasetBuilder& builder);
Status read_nq_oracle(const ReaderInput& input, DatasetBuilder& builder);
Status read_squad(const ReaderInput& input, DatasetBuilder& builder);
Status read_cacheblend(const ReaderInput& input, DatasetBuilder& builder);
Status read_passages(const ReaderInput& input, DatasetBuilder& builder);          // [{title, text}]
Status read_timeqa(const ReaderInput& input, DatasetBuilder& builder);            // articles' paragraphs
Status read_timeqa_questions(const ReaderInput& input, DatasetBuilder& builder);  // whole articles, questions
Status make_pep_successions(const ReaderInput& input, DatasetBuilder& builder);
Status make_needles(const ReaderInput& input, DatasetBuilder& builder);
Status make_pep_questions(const ReaderInput& input, DatasetBuilder& builder);
Status read_beam(const ReaderInput& input, DatasetBuilder& builder);  // conversations, each a folder

}  // namespace rhapsode::eval
