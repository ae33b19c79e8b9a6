// Talks in a conversation of a memory and shows each reply as it comes: text, or JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/answer_stream.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/memory_session.h"
#include "rhapsode/conversation.h"

namespace rhapsode::cli {

class Talker {
 public:
  // Opens or begins the conversation that the options name. kInvalidArgument for options of reading that do
  // not apply to conversations.
  static Result<std::unique_ptr<Talker>> make(Invocation& invocation, MemorySession& session,
                                              const AskOptions& options);

  // Prints everything there is to tell, errors apart.
  Result<Reply> say(const std::string& text, const InterruptGuard& interrupts);
  Status print_history();
  const std::string& name() const { return conversation_->name(); }
  // Of the last reply, best last.
  const std::vector<FoundPassage>& last_read() const { return last_read_; }

 private:
  Talker(Invocation& invocation, MemorySession& session, std::unique_ptr<Conversation> conversation,
         SayOptions options);
  void print_notes(const Reply& reply);

  MemorySession& session_;
  Terminal& terminal_;
  std::unique_ptr<Conversation> conversation_;
  SayOptions options_;
  AnswerStream stream_;
  const bool verbose_;
  std::vector<FoundPassage> last_read_;
};

}  // namespace rhapsode::cli
