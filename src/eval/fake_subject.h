// A Subject without a model, for tests: its answers, rankings and likelihoods follow from the question alone.
#pragma once

#include <cmath>

#include "eval/metrics.h"
#include "eval/subject.h"

namespace rhapsode::eval {

// Two documents' worth of memory: passage i is all of document i. A question is answered right when a passage
// read holds the answer; stored KV shifts the distribution by `reuse_shift` logits.
class FakeSubject final : public Subject {
 public:
  explicit FakeSubject(const Dataset& dataset) : dataset_(dataset) {}

  SubjectInfo info() const override { return {"fake", "F32", "fingerprint"}; }

  Result<Reply> answer(const ReadRequest& request) override {
    asked.push_back(request);
    if (fail_on == request.question) return make_error(ErrorKind::kTooLarge, "it does not fit");
    Reply reply;
    const std::vector<Span> places = places_of(request);
    for (const Span& place : places) reply.passages.push_back(passage(place.document, 1));
    reply.text = "unknown";
    for (const PlacedPassage& read : reply.passages) {
      for (const Question& question : dataset_.questions) {
        if (question.text == request.question && subspan_match(read.text, question.answers) > 0) {
          reply.text = question.answers.front() + ".\nmore";
          reply.citations = {{read.span, read.text, 2.5}};
        }
      }
    }
    reply.usage.memory_tokens_read = 10 * static_cast<int>(places.size());
    reply.timing.ttft_ms = request.reads_stored() ? 5 : 100;
    reply.timing.cite_ms = 20;
    reply.policy = rhapsode::to_string(request.policy);
    return reply;
  }

  Status warm(const std::vector<Span>& places) override {
    warmed.push_back(places);
    return {};
  }

  // A vocabulary of two; the answer is two tokens, 0 and 1.
  Result<ScoredAnswer> score(const ReadRequest& request, const std::string&, int) override {
    ++scored;
    if (!request.places && !request.closed) {
      return make_error(ErrorKind::kInvalidArgument, "nothing says what to read");
    }
    const float lift = request.reads_stored() ? reuse_shift : 0.0f;
    ScoredAnswer out{{0, 1}, 2, {1.0f + lift, 0.0f, 0.0f, 1.0f}};
    log_softmax(std::span(out.rows).first(2));
    log_softmax(std::span(out.rows).last(2));
    return out;
  }

  Result<std::vector<PlacedPassage>> rank(const std::string& question, const Ranking& ranking) override {
    std::vector<PlacedPassage> out;
    ranked.push_back(question);
    if (ranking.conversation >= 0) {
      const auto& said = dataset_.conversations[static_cast<size_t>(ranking.conversation)].messages;
      // What was said last is found first.
      for (size_t i = said.size(); i-- > 0 && static_cast<int>(out.size()) < ranking.passages;) {
        out.push_back(passage(said[i].document, static_cast<double>(i)));
      }
      return out;
    }
    const auto count = static_cast<int>(dataset_.documents.size());
    // Keywords find in the order of documents, the latent signal from the other end.
    for (int i = 0; i < std::min(ranking.passages, count); ++i) {
      out.push_back(passage(ranking.signal == Signal::kLatent ? count - 1 - i : i, count - i));
    }
    return out;
  }

  Result<std::vector<int32_t>> tokenize(const std::string& text) override {
    return std::vector<int32_t>(text.begin(), text.end());
  }

  float reuse_shift = 0.5f;
  std::string fail_on;
  std::vector<ReadRequest> asked;
  std::vector<std::string> ranked;
  std::vector<std::vector<Span>> warmed;
  int scored = 0;

 private:
  std::vector<Span> places_of(const ReadRequest& request) const {
    if (request.closed) return {};
    if (request.places) return *request.places;
    std::vector<Span> routed;
    for (int i = std::min(request.most_passages, static_cast<int>(dataset_.documents.size())); i > 0; --i) {
      routed.push_back({i - 1});
    }
    return routed;
  }
  PlacedPassage passage(int document, double score) const {
    const std::string& text = dataset_.documents[static_cast<size_t>(document)].text;
    return {{document, 0, text.size()}, fmt::format("{}.md", document), text, score};
  }

  const Dataset& dataset_;
};

}  // namespace rhapsode::eval
