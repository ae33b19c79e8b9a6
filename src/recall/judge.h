// Judges: the second stage of routing (design: "Judge"), over tens of candidates that were found.
//
// A judge gives each candidate a number, larger for better evidence; judge_again() joins it with the score of
// finding. LikelihoodJudge: the question's tokens run once over each candidate's stored KV, and what the
// passage adds to the question's log-likelihood, in nats, is its number (Sachan et al., arXiv 2204.07496,
// with passages never evaluated again). Each candidate is read right behind the encoding prefix, where its KV
// is exact. Ownership: candidates' pages are pinned by the caller. Threads: one at a time. Cost: question
// tokens x (candidates + 1) rows with logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/question_likelihood.h"
#include "recall/router.h"

namespace rhapsode::recall {

class PassageJudge {
 public:
  virtual ~PassageJudge() = default;
  // A number for each candidate; none when there is nothing to judge by (a question of one token).
  virtual Result<std::vector<double>> scores(const std::string& question,
                                             std::span<const Candidate> candidates) = 0;
  virtual uint64_t evaluated_tokens() const = 0;  // by all calls
};

class LikelihoodJudge final : public PassageJudge {
 public:
  LikelihoodJudge(PassRunner& runner, Encoder& encoder, const PromptFrame& frame)
      : likelihood_(runner, encoder, frame) {}
  Result<std::vector<double>> scores(const std::string& question,
                                     std::span<const Candidate> candidates) override;
  uint64_t evaluated_tokens() const override { return likelihood_.evaluated_tokens(); }

 private:
  QuestionLikelihood likelihood_;
};

// Ranks by z(judged) + z(score) / 2, each over those given (evidence: experiment E). A candidate that was not
// judged stands at the judged ones' mean.
void judge_again(std::vector<Ranked>& ranked);

}  // namespace rhapsode::recall
