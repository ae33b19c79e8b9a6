#include "recall/judge.h"

#include <algorithm>

#include "recall/moments.h"
#include "text/logits.h"

namespace rhapsode::recall {

namespace {

constexpr double kFindWeight = 0.5;

}  // namespace

Result<std::vector<double>> LikelihoodJudge::scores(const std::string& question,
                                                    std::span<const Candidate> candidates) {
  RH_TRY(const std::vector<int32_t> tokens, frame_.routing_question(question));
  const auto [first, last] = question_span(tokens.size());
  // The token before the first one that counts predicts it.
  if (last <= first || first == 0) return std::vector<double>{};
  RH_TRY(const std::span<const store::PagePin> prefix, encoder_.prefix_pages());
  const auto start = static_cast<int>(frame_.prefix().size());
  // The last stream reads no passage at all.
  std::vector<Stream> streams(candidates.size() + 1);
  for (size_t i = 0; i < streams.size(); ++i) {
    Stream& stream = streams[i];
    add_references(prefix, start, 0, stream.context);
    const int read = i < candidates.size() ? candidates[i].tokens : 0;
    if (read > 0) add_references(candidates[i].pages, read, start, stream.context);
    stream.tokens = std::span<const int32_t>(tokens).first(last);
    stream.position = start + read;
    stream.output_begin = static_cast<int>(first) - 1;
    stream.output_end = static_cast<int>(last) - 1;
    stream.keep_pages = false;
  }
  std::vector<double> sums(streams.size());
  Status counted;
  RH_TRY(const uint64_t rows, feed(runner_, streams, model::PassGoal::kLogits,
                                   [&](int stream, int token, std::span<const float> logits) {
                                     const auto logprob = text::log_softmax_of(logits, tokens[token + 1]);
                                     if (logprob.ok()) {
                                       sums[stream] += *logprob;
                                     } else {
                                       counted = logprob.error();
                                     }
                                   }));
  RH_TRY_STATUS(counted);
  evaluated_ += rows;
  const double nothing = sums.back();
  sums.pop_back();
  for (double& sum : sums) sum -= nothing;
  return sums;
}

void judge_again(std::vector<Ranked>& ranked) {
  std::vector<double> judged, found;
  for (const Ranked& one : ranked) {
    if (one.judged) judged.push_back(*one.judged);
    found.push_back(one.score);
  }
  const Moments by_judge = moments_of(judged), by_find = moments_of(found);
  for (Ranked& one : ranked) {
    one.score = (one.judged ? by_judge.z(*one.judged) : 0) + kFindWeight * by_find.z(one.score);
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return a.score != b.score ? a.score > b.score : a.passage < b.passage;
  });
}

}  // namespace rhapsode::recall
