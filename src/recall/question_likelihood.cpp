#include "recall/question_likelihood.h"

namespace rhapsode::recall {

Result<std::vector<double>> QuestionLikelihood::behind(const std::string& question,
                                                       std::span<const Reading> readings) {
  RH_TRY(const std::vector<int32_t> tokens, frame_.routing_question(question));
  const auto [first, last] = question_span(tokens.size());
  // The token before the first one that counts predicts it.
  if (last <= first || first == 0 || readings.empty()) return std::vector<double>{};
  RH_TRY(const std::span<const store::PagePin> prefix, encoder_.prefix_pages());
  const auto start = static_cast<int>(frame_.prefix().size());
  std::vector<Stream> streams(readings.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    Stream& stream = streams[i];
    add_references(prefix, start, 0, stream.context);
    stream.position = start;
    for (const Candidate& passage : readings[i]) {
      if (passage.tokens == 0) continue;
      add_references(passage.pages, passage.tokens, stream.position, stream.context);
      stream.position += passage.tokens;
    }
    stream.tokens = std::span<const int32_t>(tokens).first(last);
    stream.targets = std::span<const int32_t>(tokens).subspan(1);
    stream.output_begin = static_cast<int>(first) - 1;
    stream.output_end = static_cast<int>(last) - 1;
    stream.keep_pages = false;
  }
  std::vector<double> sums(streams.size());
  const auto add = [&](int stream, int, std::span<const float> logprob) { sums[stream] += logprob.front(); };
  RH_TRY(const uint64_t rows, feed(runner_, streams, model::PassGoal::kLogits, add));
  evaluated_ += rows;
  return sums;
}

}  // namespace rhapsode::recall
