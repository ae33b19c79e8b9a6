// MemoryTalk: a Talk with a model, kept in a memory of its own. Ownership: owns engine, memory, conversation.
// Threads: one at a time. Errors: theirs.
#pragma once

#include <memory>

#include "eval/long_conversation.h"
#include "eval/memory_subject.h"
#include "rhapsode/memory.h"

namespace rhapsode::eval {

class MemoryTalk final : public Talk {
 public:
  // The folder holds no memory yet: a conversation that is measured from its beginning.
  static Result<std::unique_ptr<MemoryTalk>> open(const MemorySubjectOptions& options,
                                                  int live_budget_tokens);

  const SubjectInfo& info() const { return info_; }
  Result<rhapsode::Reply> note(const NotedMessage& message) override { return conversation_->note(message); }
  Result<rhapsode::Reply> say(const SayOptions& options) override { return conversation_->say(options); }
  Status remember(const HeardMessage& message) override;
  Result<std::vector<FactInfo>> facts() override;
  uint64_t resident_bytes() override;

 private:
  MemoryTalk() = default;

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;              // behind the engine,
  std::unique_ptr<Conversation> conversation_;  // and behind the memory
  SubjectInfo info_;
};

}  // namespace rhapsode::eval
