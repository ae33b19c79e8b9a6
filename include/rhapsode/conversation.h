// A conversation without end, kept in a memory under a name.
//
// The last `live_budget_tokens` of it are live: every turn reads them. When that is full, the oldest part
// spills into the memory as it is: its KV becomes that of a passage, nothing is evaluated again but the
// routing keys (a fifth of the model), and later turns find it as they find documents. Nothing is cut away:
// what was spilled and what was recalled is in every reply. Every message is durable before it is answered,
// every answer before say() returns; a killed process goes on where it was. KV that saw a source is dropped
// when that source is forgotten (Memory::forget) and made again from the conversation's own text.
// Ownership: keeps a reference to its memory, which outlives it. Threads: any function from any thread, but
// not from within on_text; calls on one memory wait for one another. One open object a conversation. Errors:
// kInvalidArgument for a memory open without its model or for reading only.
// Cost of a turn: its own tokens through the model, routing, and what must be made of what is recalled;
// whatever was said before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/memory.h"

namespace rhapsode {

class ConversationTurn;

struct ConversationOptions {
  std::string name;               // in the memory its passages are sources "chats/NAME/..."
  bool create = true;             // else kNotFound when there is none
  std::string fork_from;          // a new conversation begins as this one is now
  int live_budget_tokens = 2048;  // at least 256
};

struct SayOptions {
  std::string text;
  std::string speaker;  // told to the model when given
  std::string time;     // ISO 8601; empty: now, and not told to the model
  SourceFilter filter;  // of documents
  bool documents = true;
  bool other_conversations = false;  // may be recalled, too
  int budget_tokens = 1536;          // of what is recalled
  int most_passages = 5;             // 0: nothing is recalled
  JudgeOptions judge;
  ChainOptions chain;
  LinkOptions links;
  ReadPolicy policy = ReadPolicy::kAuto;  // reuse, or what is recalled is evaluated as text
  double max_kl = 0.5;                    // as AskOptions
  double max_f1_loss = 0.05;
  int max_tokens = 256;
  SamplingOptions sampling;
  std::function<bool(std::string_view)> on_text;  // as Request::on_text
};

// Something said elsewhere: a conversation that is taken over, a tool's result.
struct NotedMessage {
  std::string role = "user";  // "user", "assistant"
  std::string text;
  std::string speaker;
  std::string time;
};

// A stretch of the conversation that is a passage of the memory.
struct SpilledPassage {
  int64_t passage = 0;
  std::string source;
  int tokens = 0;             // of it; in Reply::spilled, those that are live no more
  int64_t first_message = 0;  // of those with words in it
  int64_t last_message = 0;
};

struct RecalledPassage {
  FoundPassage found;
  int tokens = 0;
  bool conversation = false;  // a passage of a conversation, not of a document
  bool as_computed = false;   // its KV is that of when it was live
  PassageReading reading;
};

struct TurnUsage {
  int message_tokens = 0;    // of the new message, the template's among them
  int generated_tokens = 0;  // of the answer
  int evaluated_tokens = 0;  // run through the whole model, not counting generated ones: the message, the
                             // end of the turn, what was recalled without stored KV, what was made anew
  int made_anew_tokens = 0;  // of those: after a restart, or because a source was forgotten
  int index_tokens = 0;      // run through the first fifth for routing keys of what is to be spilled
  int probe_tokens = 0;      // run for routing and judging
  int recalled_tokens = 0;
  int live_tokens = 0;  // after the turn
};

struct Reply {
  std::string text;
  int64_t turn = 0;     // from 0
  int64_t message = 0;  // the answer's number
  FinishReason finish = FinishReason::kEnd;
  std::vector<SpilledPassage> spilled;
  std::vector<RecalledPassage> recalled;  // in the order read: the conversation's own, then documents
  TurnUsage usage;
  AskTiming timing;
  ReadPolicy policy = ReadPolicy::kFull;  // of what was recalled
  std::string policy_reason;
};

struct SaidMessage {
  int64_t number = 0;
  int64_t turn = 0;
  std::string role;
  std::string speaker;
  std::string time;
  std::string text;
  bool forgotten = false;  // its text was erased with what it was about
};

class Conversation {
 public:
  // Opens a conversation of the memory, or makes it. What of its end was live and has no stored KV is
  // evaluated by the first turn.
  static Result<std::unique_ptr<Conversation>> open(Memory& memory, const ConversationOptions& options);
  // Lets go of the live KV: the first turn of the next one to open it makes it anew (reported), at most a
  // passage and the last turn.
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // A message and the answer to it. A message larger than the live budget is read in steps. When the answer
  // fails or is cancelled, the message has been said all the same, and what came of the answer.
  Result<Reply> say(const SayOptions& options);
  // The same without an answer.
  Result<Reply> note(const NotedMessage& message);
  // How likely `answer` (its first tokens) would be as the reply to the same say(); nothing is kept.
  Result<AnswerScore> score(const SayOptions& options, const std::string& answer, int most_tokens = 64);

  // Another conversation that begins as this one is now: messages are copied, passages and KV shared.
  Result<std::unique_ptr<Conversation>> fork(const std::string& name);

  // Everything that was said.
  Result<std::vector<SaidMessage>> history();
  // The passages that it has become, in order, those still live among them; what was said last may be in
  // none yet.
  Result<std::vector<SpilledPassage>> passages();
  int live_tokens() const;
  const std::string& name() const;

 private:
  friend class ConversationTurn;
  struct Impl;
  explicit Conversation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rhapsode
