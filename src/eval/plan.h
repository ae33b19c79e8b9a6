// Which questions an evaluation asks, and what stands before each: decided by the data and seeds alone,
// before any model is loaded.
//
// Ownership: keeps references to the task and data, which outlive it. Threads: const, any. Cost: BM25 over
// the documents when distractors are asked for. Errors: kInvalidArgument for contexts that the task does not
// allow.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/bm25.h"
#include "eval/dataset.h"
#include "eval/options.h"
#include "eval/task.h"

namespace rhapsode::eval {

class Plan {
 public:
  static Result<Plan> make(const Task& task, const Dataset& dataset, const Options& options);

  const Task& task() const { return *task_; }
  const Dataset& dataset() const { return *dataset_; }
  const std::vector<Context>& contexts() const { return contexts_; }
  const std::string& baseline() const { return baseline_; }  // empty: none
  // In the order in which they are asked: one conversation after another, where such are replayed.
  const std::vector<int>& questions() const { return questions_; }
  const Question& question(int number) const { return dataset_->questions[static_cast<size_t>(number)]; }

  // The first place of each piece of evidence.
  std::vector<Span> gold_places(const Question& question) const;
  // What full and reuse read: the question's own passages, or its evidence among BM25 neighbours that hold
  // none of its answers, in a seeded order.
  std::vector<Span> own_places(const Question& question) const;
  // Whether everything must be in the memory, or only what questions come with.
  bool searches() const;
  // The documents that the memory has to hold, ascending. A pool of limited size holds what the questions
  // need, whatever its size, and fills up with others in one seeded order: a larger pool holds all of a
  // smaller one.
  std::vector<int> needed_documents() const;
  // Numbers of the pieces of evidence that a passage holds.
  static std::vector<int> gold_in(const Question& question, const Span& passage);

 private:
  Plan(const Task& task, const Dataset& dataset, const Options& options)
      : task_(&task), dataset_(&dataset), seed_(options.seed) {}
  std::vector<Span> neighbours(const Question& question, const std::vector<Span>& gold) const;
  void fill_pool(std::set<int>& needed) const;

  const Task* task_;
  const Dataset* dataset_;
  uint64_t seed_;
  int distractors_ = -1;
  int pool_tokens_ = 0;
  std::vector<Context> contexts_;
  std::string baseline_;
  std::vector<int> questions_;
  std::shared_ptr<const Bm25> search_;  // null without distractors
};

}  // namespace rhapsode::eval
