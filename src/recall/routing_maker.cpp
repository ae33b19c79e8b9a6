#include "recall/routing_maker.h"

#include <algorithm>

#include "recall/router.h"
#include "text/passage.h"
#include "text/reader.h"

namespace rhapsode::recall {

namespace {

// Passages encoded together.
constexpr size_t kBatch = 8;

class Maker {
 public:
  Maker(PassRunner& runner, Encoder& encoder, const PromptFrame& frame, const RoutingSample& sample)
      : runner_(runner),
        encoder_(encoder),
        frame_(frame),
        sample_(sample),
        trainer_(runner.architecture().embedding, model::state_layer(runner.architecture()),
                 runner.architecture().title) {}

  Result<MadeWhitening> make() {
    for (const std::string& question : sample_.questions) RH_TRY_STATUS(add_question(question));
    Status failed;
    text::ScanCallbacks callbacks;
    callbacks.on_source = [&](text::SourceBytes source) {
      failed = add_text(std::move(source));
      return failed.ok() && trainer_.chunks() < sample_.most_chunks;
    };
    callbacks.on_skip = [](const text::Skip&) {};
    RH_TRY_STATUS(text::scan_sources(sample_.paths, {}, callbacks));
    RH_TRY_STATUS(failed);
    RH_TRY_STATUS(flush());
    RH_TRY(index::Whitening whitening, trainer_.finish());
    return MadeWhitening{std::move(whitening), trainer_.chunks()};
  }

 private:
  Status add_question(std::string_view question) {
    const size_t width = runner_.architecture().embedding;
    RH_TRY(const std::vector<int32_t> tokens, frame_.routing_question(question));
    RH_TRY(const std::vector<float> states, encoder_.question_states(tokens));
    const auto [first, last] = question_span(tokens.size());
    for (size_t i = first; i < last; ++i) {
      trainer_.add_question_token(std::span(states).subspan(i * width, width));
    }
    return {};
  }

  // One sentence of every passage, of the length that questions have.
  Status add_sentence(std::string_view body, text::DocumentKind kind) {
    const std::vector<size_t> starts = text::sentence_starts(body, kind);
    for (size_t i = 0; i + 1 < starts.size(); ++i) {
      const size_t bytes = starts[i + 1] - starts[i];
      if (bytes >= 30 && bytes <= 200) return add_question(body.substr(starts[i], bytes));
    }
    return {};
  }

  Status add_text(text::SourceBytes source) {
    const std::string name = source.name;
    auto document = text::read_document(name, std::move(source.bytes));
    if (!document.ok()) return {};  // nothing to read there
    const auto count = [&](std::string_view piece) {
      const auto tokens = runner_.tokenizer().encode(piece);
      return tokens.ok() ? static_cast<int>(tokens->size()) : 0;
    };
    RH_TRY(const std::vector<text::Passage> passages, text::cut_passages(*document, count));
    for (const text::Passage& passage : passages) {
      if (trainer_.chunks() >= sample_.most_chunks) return {};
      const auto body = std::string_view(document->text).substr(passage.begin, passage.end - passage.begin);
      RH_TRY(PassageTokens tokens, frame_.passage(passage.header, body));
      if (sample_.questions.empty()) RH_TRY_STATUS(add_sentence(body, document->kind));
      waiting_.push_back(std::move(tokens));
      if (waiting_.size() >= kBatch) RH_TRY_STATUS(flush());
    }
    return {};
  }

  Status flush() {
    const size_t width = runner_.architecture().embedding;
    RH_TRY(const std::vector<Encoded> encoded, encoder_.encode(waiting_, /*index_only=*/true));
    for (const Encoded& passage : encoded) {
      for (int chunk = 0; chunk < passage.chunks; ++chunk) {
        trainer_.add_chunk(std::span(passage.chunk_states).subspan(chunk * width, width));
      }
    }
    waiting_.clear();
    if (!sample_.on_progress || sample_.on_progress(trainer_.chunks())) return {};
    return make_error(ErrorKind::kCancelled, "cancelled");
  }

  PassRunner& runner_;
  Encoder& encoder_;
  const PromptFrame& frame_;
  const RoutingSample& sample_;
  index::WhiteningTrainer trainer_;
  std::vector<PassageTokens> waiting_;
};

}  // namespace

Result<MadeWhitening> make_whitening(PassRunner& runner, Encoder& encoder, const PromptFrame& frame,
                                     const RoutingSample& sample) {
  return Maker(runner, encoder, frame, sample).make();
}

}  // namespace rhapsode::recall
