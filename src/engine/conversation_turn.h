// One turn of a conversation, step by step: what is said, what is recalled, the answer, the turn's end.
//
// Shared by conversation_turn.cpp and conversation_recall.cpp. Threads: one call at a time, inside the
// memory's gate.
#pragma once

#include <string>
#include <vector>

#include "engine/conversation_impl.h"

namespace rhapsode {

class ConversationTurn {
 public:
  ConversationTurn(Conversation::Impl& conversation, const SayOptions& options)
      : conversation_(conversation), memory_(conversation.memory), options_(options), begin_ns_(now_ns()) {}

  Result<Reply> say();
  Result<AnswerScore> score(const std::string& answer, int most_tokens);

 private:
  // A passage to be recalled.
  struct Chosen {
    FoundPassage found;
    int64_t content = 0;
    bool conversation = false;
    bool own = false;
    std::vector<int32_t> tokens;  // as they are read
    recall::PassageTokens alone;  // unless it is read as it was computed
    std::optional<store::Spill> spill;
    std::vector<store::PagePin> pages;
    std::string miss;
    bool shortened = false;  // without words that are outdated: read as text whatever is stored of it
  };

  Status check() const;
  // --- conversation_recall.cpp: fills view_ and reply_.recalled ---
  Status recall();
  std::string routing_text() const;
  Result<store::Selection> selection() const;
  Result<std::vector<Chosen>> choose();
  Status find_outdated();
  Result<Chosen> take(FoundPassage found, int64_t content) const;
  // The passage without what does not hold any more; nothing when all of it holds.
  Result<std::optional<Transcript>> without_outdated(const store::ConversationPassage& passage) const;
  void choose_policy(std::span<const Chosen> chosen);
  Status load(std::vector<Chosen>& chosen);
  Status view_stored(std::vector<Chosen>& chosen);
  Status view_evaluated(std::vector<Chosen>& chosen);
  void report(std::vector<Chosen>& chosen);
  Result<std::vector<int32_t>> opening_tokens() const;

  Status answer(std::span<const int32_t> tokens);

  Conversation::Impl& conversation_;
  Memory::Impl& memory_;
  const SayOptions& options_;
  int64_t begin_ns_;
  int64_t first_text_ns_ = 0;
  std::vector<OutdatedWords> outdated_;
  ConversationView view_;
  Reply reply_;
};

}  // namespace rhapsode
