// Asking in several hops: what one hop finds and answers becomes part of the next one's query.
//
// Each hop adds its best new passages, the best one last, behind those of earlier hops, which are read in the
// same order again, so that their KV (stored, or of an equal prefix) is used as it is.
// The query of a hop is the question with
// the sentence of the hop before that speaks most of it, and that hop's partial answer. Passages are joined
// by nothing but their text: two people of one name stay two sources with their own passages, each in the
// trace with what found it. Threads: one call at a time, inside the memory's gate. Cost: a routing and a
// short answer a hop.
#pragma once

#include <string>
#include <vector>

#include "engine/asking.h"

namespace rhapsode {

class Memory::Hopping {
 public:
  Hopping(Impl& memory, const AskOptions& options)
      : memory_(memory), options_(options), begin_ns_(now_ns()) {}
  Result<Answer> run();

 private:
  // Routes `query` and takes the best passages that no earlier hop has, within what is left of the budget.
  Result<Hop> find(const std::string& query, const Impl::QuestionTimes& times);
  // Answers the question from all passages taken so far.
  Result<Answer> answer(bool last);
  bool is_unfit() const;
  Answer abstained(std::vector<Hop> hops);
  // What the last hop's trace cannot know: what was looked for before it.
  AnswerTrace traced(AnswerTrace trace);

  Impl& memory_;
  const AskOptions& options_;
  int64_t begin_ns_;
  std::vector<std::string> terms_;   // of the question
  std::vector<FoundPassage> taken_;  // in reading order
  int taken_tokens_ = 0;
  int probe_tokens_ = 0;
  int cold_candidates_ = 0;
  double route_ms_ = 0;
  std::vector<TracedRouting> routings_;  // a hop each
};

}  // namespace rhapsode
