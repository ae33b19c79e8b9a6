// ReplaySubject: a model with memories into which conversations are replayed, one memory each.
//
// A conversation is said message by message, with who said it and when, in its live budget, when it is first
// asked about; a second run over the same folder says what is missing. rank() gives messages (replay.h), out
// of what a search of that conversation's passages finds. Nothing is answered. Ownership: owns engine and
// memory; keeps a reference to the data. Threads: one at a time. Cost: the conversation through the model,
// then one search a call. Errors: those of engine and memory.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/memory_subject.h"
#include "eval/replay.h"
#include "eval/subject.h"
#include "rhapsode/memory.h"

namespace rhapsode::eval {

struct ReplayOptions {
  MemorySubjectOptions memory;  // of each; `documents` and `encode` mean nothing here
  int live_budget_tokens = 2048;
  // Of the conversation's messages; false stops.
  std::function<bool(const std::string& conversation, size_t done, size_t total)> on_message;
};

class ReplaySubject final : public Subject {
 public:
  static Result<std::unique_ptr<ReplaySubject>> open(const Dataset& dataset, ReplayOptions options);

  SubjectInfo info() const override { return info_; }
  Result<std::vector<PlacedPassage>> rank(const std::string& question, const Ranking& ranking) override;
  Result<std::vector<int32_t>> tokenize(const std::string& text) override;
  // What was said is ranked, not answered from: kUnsupported.
  Result<Reply> answer(const ReadRequest& request) override;
  Status warm(const std::vector<Span>& places) override;
  Result<ScoredAnswer> score(const ReadRequest& request, const std::string& answer, int most_tokens) override;

 private:
  ReplaySubject(const Dataset& dataset, ReplayOptions options)
      : dataset_(dataset), options_(std::move(options)) {}
  Status bring(int conversation);
  Status say_rest(const SpokenConversation& spoken, Conversation& conversation);
  Result<std::unique_ptr<Memory>> open_memory(const std::string& name);

  const Dataset& dataset_;
  ReplayOptions options_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;  // of the conversation asked about last; behind the engine
  int conversation_ = -1;
  std::map<int64_t, int> documents_;  // of it, by number of the message
  std::map<int64_t, MessageRange> ranges_;
  SubjectInfo info_;
};

}  // namespace rhapsode::eval
