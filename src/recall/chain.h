// Chains of evidence: the third stage of routing (design: "Chain"), for questions of several passages.
//
// Greedy: the first passage is given; the next one is the one that makes the question likeliest given those
// already chosen (question_likelihood.h), joined with what finding says of it and with whether it is linked
// to one of them: z(gain) + prior + 1 if linked. Only passages whose gain pays for them are taken, and the
// chain ends when there is none: what a question of one passage, or a comparison that is answered already,
// needs no more of costs it nothing. Ownership: candidates' pages are pinned by the caller. Threads: one at a
// time. Determinism: ties go to the earlier candidate. Cost: question tokens x (candidates + 1) rows a
// further passage.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/question_likelihood.h"
#include "recall/router.h"

namespace rhapsode::recall {

struct ChainCandidate {
  Candidate kv;
  double prior = 0;            // z-score of what was known of it
  std::vector<size_t> linked;  // numbers of candidates that it shares a mention with
};

struct ChainLimits {
  int passages = 4;
  double cost = 1.0;  // nats
};

struct Chain {
  std::vector<size_t> chosen;   // numbers of candidates, the first one first
  std::vector<double> gains;    // nats that each adds behind those before it; of the first, behind nothing
  std::vector<double> seconds;  // of every candidate, how well it follows the first; empty: not looked at
};

class EvidenceChain {
 public:
  EvidenceChain(PassRunner& runner, Encoder& encoder, const PromptFrame& frame)
      : likelihood_(runner, encoder, frame) {}
  Result<Chain> build(const std::string& question, std::span<const ChainCandidate> candidates, size_t first,
                      const ChainLimits& limits);
  uint64_t evaluated_tokens() const { return likelihood_.evaluated_tokens(); }

 private:
  QuestionLikelihood likelihood_;
};

// The ranking with a chain of `pool` in front. Behind a chain of more than one passage the others of the pool
// follow by how well each follows the first passage, then the rest of `ranked`; a chain of one changes
// nothing but what is known of its passage. Scores become 1 / rank.
std::vector<Ranked> chain_first(std::span<const Ranked> ranked, std::span<const Ranked> pool,
                                const Chain& chain);

}  // namespace rhapsode::recall
