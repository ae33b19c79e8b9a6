#include "recall/encoder.h"

#include <algorithm>

namespace rhapsode::recall {

std::vector<kernels::PageReference> Encoder::prefix_context() const {
  std::vector<kernels::PageReference> references;
  add_references(prefix_, static_cast<int>(frame_.prefix().size()), 0, references);
  return references;
}

Result<std::span<const store::PagePin>> Encoder::prefix_pages() {
  if (prefix_.empty() && !frame_.prefix().empty()) {
    Stream stream;
    stream.tokens = frame_.prefix();
    RH_TRY(const uint64_t rows, feed(runner_, std::span(&stream, 1), model::PassGoal::kEncode,
                                     [](int, int, std::span<const float>) {}));
    evaluated_tokens_ += rows;
    prefix_ = std::move(stream.pages);
  }
  return std::span<const store::PagePin>(prefix_);
}

Result<std::vector<Encoded>> Encoder::encode(std::span<const PassageTokens> passages, bool index_only) {
  RH_TRY_STATUS(prefix_pages());
  const size_t width = runner_.architecture().embedding;
  std::vector<Encoded> encoded(passages.size());
  std::vector<Stream> streams(passages.size());
  for (size_t i = 0; i < passages.size(); ++i) {
    const PassageTokens& passage = passages[i];
    encoded[i].chunks = (passage.text_tokens + kChunkTokens - 1) / kChunkTokens;
    encoded[i].chunk_states.assign(encoded[i].chunks * width, 0.0f);
    streams[i].context = prefix_context();
    streams[i].tokens = passage.tokens;
    streams[i].position = static_cast<int32_t>(frame_.prefix().size());
    streams[i].output_begin = passage.header_tokens;
    streams[i].output_end = passage.header_tokens + passage.text_tokens;
    streams[i].pooled_tokens = kChunkTokens;
    streams[i].keep_pages = !index_only;
  }
  const auto gather = [&](int stream, int token, std::span<const float> sum) {
    const PassageTokens& passage = passages[stream];
    const int text = token - passage.header_tokens;
    const int chunk = text / kChunkTokens;
    const auto size = static_cast<float>(std::min(kChunkTokens, passage.text_tokens - chunk * kChunkTokens));
    float* mean = encoded[stream].chunk_states.data() + chunk * width;
    for (size_t i = 0; i < width; ++i) mean[i] += sum[i] / size;
  };
  const auto goal = index_only ? model::PassGoal::kStates : model::PassGoal::kEncode;
  RH_TRY(const uint64_t rows, feed(runner_, streams, goal, gather));
  evaluated_tokens_ += rows;
  for (size_t i = 0; i < passages.size(); ++i) encoded[i].pages = std::move(streams[i].pages);
  return encoded;
}

Result<std::vector<float>> Encoder::question_states(std::span<const int32_t> tokens) {
  RH_TRY_STATUS(prefix_pages());
  const size_t width = runner_.architecture().embedding;
  std::vector<float> states(tokens.size() * width);
  Stream stream;
  stream.context = prefix_context();
  stream.tokens = tokens;
  stream.position = static_cast<int32_t>(frame_.prefix().size());
  stream.output_end = static_cast<int>(tokens.size());
  stream.keep_pages = false;
  const auto keep = [&](int, int token, std::span<const float> state) {
    std::copy(state.begin(), state.end(), states.begin() + token * width);
  };
  RH_TRY(const uint64_t rows, feed(runner_, std::span(&stream, 1), model::PassGoal::kStates, keep));
  evaluated_tokens_ += rows;
  return states;
}

}  // namespace rhapsode::recall
