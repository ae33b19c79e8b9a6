// Asks a subject every planned question in every context and measures the replies.
//
// The order is fixed: question by question, in each first closed, gold and full, so that what is read from
// stored KV can be compared with full attention over the same text. What is read from stored KV has it made
// beforehand; the answer is measured before its likelihood, so that no cache knows the question.
// Ownership: keeps references; plan and subject outlive it. Threads: one. Errors: a question that fails is
// recorded with its reason; kCancelled when the caller stops; an error of the results file ends the run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/plan.h"
#include "eval/record.h"
#include "eval/results_file.h"
#include "eval/subject.h"

namespace rhapsode::eval {

struct EvaluationProgress {
  int done = 0;  // pairs of question and context
  int total = 0;
  const Question* question = nullptr;  // being asked
  Context context = Context::kClosed;
};

// A text whose likelihood is measured, and the name that its scores get.
struct ScoredText {
  std::string text;
  int most_tokens = 0;
  std::string prefix;
};

class Evaluation {
 public:
  Evaluation(const Plan& plan, const Options& options, Subject& subject)
      : plan_(plan), options_(options), subject_(subject) {}

  // What results of equal numbers need: model, data, task and every option that changes a reply. Without
  // command line, machine and time, which the caller adds.
  Json settings() const;

  // false from on_progress stops after the question in hand.
  Status run(ResultsFile& results, const std::function<bool(const EvaluationProgress&)>& on_progress = {});

  // One question in one context.
  Record ask(const Question& question, const Context& context);

 private:
  // What is kept while one question goes through its contexts.
  struct Kept {
    const Question* question = nullptr;
    std::optional<double> full_ttft_ms;
    std::string full_reply;
    std::vector<std::pair<std::vector<Span>, ScoredAnswer>> full_scores;  // full attention, by what was read
  };

  Status measure(const Question& question, const Context& context, Record& record);
  Result<ReadRequest> request_for(const Question& question, const Context& context, Record& record);
  Status rank(const Question& question, const Context& context, Record& record);
  // BM25 over the messages of the question's conversation, as published baselines rank them.
  Result<std::vector<PlacedPassage>> rank_messages(const Question& question, int most);
  Status warm(const ReadRequest& request, const Record& record);
  Status answer(const ReadRequest& request, const Context& context, const Question& question, Record& record);
  Status score_fidelity(ReadRequest request, const Context& context, const Question& question,
                        Record& record);
  Result<ScoredAnswer> full_score(const ReadRequest& request, const std::vector<Span>& places,
                                  const ScoredText& text);
  ScoredText scored_text(const Question& question) const;
  static void compare(const ScoredAnswer& full, const ScoredAnswer& scored, const std::string& prefix,
                      Record& record);
  void score_text(const Question& question, Record& record);
  void score_cacheblend(const Question& question, Record& record);
  void score_citations(const Question& question, Record& record);
  std::vector<RankedPassage> placed(const Question& question,
                                    const std::vector<PlacedPassage>& passages) const;

  const Plan& plan_;
  const Options& options_;
  Subject& subject_;
  Kept kept_;
  std::optional<std::pair<int, Bm25>> messages_;  // of the conversation asked about last
};

}  // namespace rhapsode::eval
