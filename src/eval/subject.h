// Subject: what is measured, behind the few calls that the measurements need.
//
// MemorySubject (memory_subject.h) is a model with a memory; tests use one without a model. Places are spans
// of the data set's documents; a span stands for every stored passage that overlaps it. Threads: one at a
// time. Errors: a failed call spoils one question; a run ends when twenty in a row fail.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"
#include "rhapsode/answer.h"

namespace rhapsode::eval {

enum class Signal : uint8_t { kFused, kKeywords, kLatent, kJudged, kChain, kEvidence, kJudgedEvidence };

struct ReadRequest {
  std::string question;
  bool closed = false;                    // nothing stands before the question
  ReadPolicy policy = ReadPolicy::kFull;  // how passages are read; never kAuto
  BlendOptions blend;
  std::optional<std::vector<Span>> places;  // in reading order, best last; unset: the memory routes
  bool best_first = false;                  // when the memory routes
  Signal signal = Signal::kFused;           // the same: by which signals
  bool links = false;
  RerouteOptions reroute;
  int most_passages = 5;
  int budget_tokens = 2560;
  int max_tokens = 24;
  bool cite = false;

  // Whether KV is read that was made elsewhere.
  bool reads_stored() const {
    return !closed && (policy == ReadPolicy::kReuse || policy == ReadPolicy::kBlend);
  }
};

struct PlacedPassage {
  Span span;  // of a stored passage
  std::string source;
  std::string text;
  double score = 0;
  std::vector<float> evidence;  // what a trained ranker weighed
};

struct PlacedCitation {
  Span span;
  std::string quote;
  double support = 0;
};

struct Reply {
  std::string text;
  bool abstained = false;
  std::vector<PlacedPassage> passages;  // as read
  std::vector<PlacedCitation> citations;
  AskUsage usage;
  AskTiming timing;
  std::string policy;
  std::string policy_reason;
};

// The model's view of a given answer: for each of its tokens, log-probabilities of all tokens in its place.
struct ScoredAnswer {
  std::vector<int32_t> tokens;
  size_t vocabulary = 0;
  std::vector<float> rows;  // [tokens][vocabulary], natural logarithms

  std::span<const float> row(size_t token) const {
    return std::span(rows).subspan(token * vocabulary, vocabulary);
  }
};

struct Ranking {
  Signal signal = Signal::kFused;
  bool links = false;
  int passages = 10;      // or messages, where a conversation is asked about
  int conversation = -1;  // of Dataset::conversations: what was said there is ranked
};

struct SubjectInfo {
  std::string model;
  std::string weights;
  std::string fingerprint;
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual SubjectInfo info() const = 0;
  virtual Result<Reply> answer(const ReadRequest& request) = 0;
  // Makes sure that these passages' KV is stored, without reading the question: a later answer() finds
  // nothing of itself in any cache.
  virtual Status warm(const std::vector<Span>& places) = 0;
  // Of the answer's first tokens. request.places is set unless nothing is read.
  virtual Result<ScoredAnswer> score(const ReadRequest& request, const std::string& answer,
                                     int most_tokens) = 0;
  // The best passages of the whole memory, or the best messages of a conversation, best first.
  virtual Result<std::vector<PlacedPassage>> rank(const std::string& question, const Ranking& ranking) = 0;
  // Token ids of plain text.
  virtual Result<std::vector<int32_t>> tokenize(const std::string& text) = 0;
};

}  // namespace rhapsode::eval
