// What a Conversation is made of: shared by conversation.cpp (open, resume, fork), conversation_live.cpp (the
// live part: evaluating, cutting, spilling) and conversation_turn.cpp (a turn).
//
// The conversation is one run of tokens: messages with the template's own tokens around them. Its end is
// live, as a list of segments. Each segment has pages of its own, in a frame of its own, so that it can be
// read at any position; the last one, the tail, grows. A full one is closed: it becomes a passage of the
// memory, with routing keys made from its text alone and the KV it has; it stays live until the budget wants
// it to go. Positions are given anew for every step. Threads: inside the memory's gate.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory_impl.h"
#include "rhapsode/conversation.h"
#include "store/conversation_log.h"

namespace rhapsode {

struct LiveSegment {
  std::vector<store::PagePin> pages;
  std::vector<int32_t> tokens;
  int64_t first_token = 0;                   // in the conversation
  std::string context;                       // a hash of all that was in view while it was computed
  std::set<int64_t> saw;                     // contents in view meanwhile
  std::map<int64_t, std::string> leaned_on;  // passages read as they were computed, and their fingerprints
  // Once closed:
  store::ConversationPassage stored;
  std::string source;
  int64_t first_message = 0;
  int64_t last_message = 0;

  int size() const { return static_cast<int>(tokens.size()); }
  int64_t end_token() const { return first_token + size(); }
  int32_t first_position() const { return pages.empty() ? 0 : pages.front()->positions[0]; }
};

// Tokens with their KV, to be read somewhere.
struct ContextPart {
  std::vector<store::PagePin> pages;
  std::vector<int32_t> tokens;
};

// What one step sees besides the live part.
struct ConversationView {
  std::vector<ContextPart> before;  // behind the prefix
  std::vector<ContextPart> behind;  // behind the live part
  std::set<int64_t> contents;
  std::map<int64_t, std::string> leaned_on;
  std::string names;  // of all of it, for the context's hash
};

// A prompt whose beginning has KV, put together.
struct PromptParts {
  std::vector<engine::ContextRun> runs;
  std::vector<int32_t> tokens;

  void add(std::span<const store::PagePin> pages, std::span<const int32_t> part);
};

// A range of a conversation's tokens, to be a passage; `messages` are those it reaches into, or more.
struct ConversationPiece {
  const store::ConversationRow& conversation;
  int64_t number = 0;  // of the passage
  int64_t begin = 0;
  int64_t end = 0;
  std::span<const store::MessageRow> messages;
};

// The first and the last message with words in it; of template alone, with anything.
std::pair<int64_t, int64_t> messages_of(const ConversationPiece& piece);

// What of the messages stands there.
struct Transcript {
  std::string text;
  std::string header;  // "[speaker, date]"
  std::string speakers;
  std::string said;        // the first
  bool shortened = false;  // something outdated was left out
};
// A sentence by which somebody told a fact that does not hold any more, or took one back.
struct OutdatedWords {
  std::string speaker;
  std::string told;  // as the message's time; empty: unknown
  std::string quote;
};
// Those of the facts, less what was said alike of a fact in force.
std::vector<OutdatedWords> outdated_words(std::span<const store::FactRow> facts);

// Without the outdated sentences, where they stand in one piece in messages of who said them.
Transcript transcript_of(const ConversationPiece& piece, const text::Tokenizer& tokenizer,
                         std::span<const OutdatedWords> outdated = {});

// The piece as a passage of the memory like any other.
struct PassageDraft {
  store::ContentKey key;
  store::ContentRecord content;
  store::SourceRecord source;
  recall::PassageTokens alone;
};
Result<PassageDraft> draft_passage(const recall::PromptFrame& frame, const ConversationPiece& piece,
                                   const Transcript& transcript);
// Routing keys of its text alone: a fifth of the model.
struct DraftCodes {
  std::vector<std::byte> codes;
  int chunks = 0;
};
Result<DraftCodes> encode_draft(recall::Encoder& encoder, const index::Whitening& whitening,
                                const PassageDraft& draft);

struct Conversation::Impl {
  Impl(Memory& owner, Memory::Impl& memory_in, ConversationOptions options_in)
      : owner_memory(owner), memory(memory_in), options(std::move(options_in)), log(*memory_in.catalog) {}

  Memory& owner_memory;
  Memory::Impl& memory;
  ConversationOptions options;
  store::ConversationLog log;
  store::ConversationRow row;
  recall::TurnFrame frame;
  std::vector<int32_t> behind_answer;  // tokens of frame.behind_answer
  ContextPart opening;                 // of a block of documents; made when first needed

  std::deque<LiveSegment> closed;  // live ones, the oldest first
  LiveSegment tail;
  std::vector<store::MessageRow> recent;                // those that reach into the tail
  std::map<int64_t, store::ConversationPassage> known;  // every closed passage, by id
  int64_t next_passage = 0;
  int64_t next_number = 0;
  int64_t next_turn = 0;
  bool unanswered = false;  // the last message is a question
  bool stale = true;        // the live part must be made from the log

  // A closed segment aims at this many tokens and has at most a quarter more.
  int aim_tokens() const;
  int live_tokens() const;

  // --- conversation.cpp ---
  Status set_up();
  Status check_name() const;
  Status still_there();
  // Makes the live part good: from the log after a restart or a failure, without what has been forgotten.
  Status bring_live(TurnUsage& usage);
  Status resume(TurnUsage& usage);
  Status load_live(std::span<const store::ConversationPassage> passages, TurnUsage& usage);
  Result<std::vector<int32_t>> tokens_between(int64_t begin, int64_t end) const;
  Status heed_forgotten(TurnUsage& usage);
  Result<size_t> first_tainted() const;  // index in `closed`; closed.size(): the tail; one more: none
  Status make_anew(LiveSegment segment, TurnUsage& usage);

  // --- conversation_live.cpp ---
  Result<PromptParts> context(const ConversationView& view, bool with_live);
  // What ends where a step does: the tail is closed from another size on.
  enum class Border : uint8_t { kNone, kMessage, kTurn };
  // Evaluates tokens behind all that is live and makes them part of the tail.
  Status take_in(std::span<const int32_t> tokens, const ConversationView& view);
  // The same in steps, cutting and spilling on the way; at the end of the tokens is a border.
  Status take_in_steps(std::span<const int32_t> tokens, Border end, Reply& reply);
  Result<std::shared_ptr<Generation::State>> start_state(const ConversationView& view, Request request,
                                                         std::span<const int32_t> tokens);
  void absorb(Generation::State& state, std::span<const int32_t> tokens, const ConversationView& view);
  // Pages of tokens evaluated behind `parts`, not part of the conversation.
  Result<ContextPart> evaluate_part(PromptParts parts, std::vector<int32_t> tokens);
  // Makes room for `tokens` more, spilling what is oldest.
  Status make_room(int tokens, int reserve, Reply& reply);
  // Closes what is full; at a border, the tail as a whole. A turn's end is where passages should end: what
  // was asked is found with the answer to it, not with the end of the answer before.
  Status close_full(Border border, TurnUsage& usage);
  Status close(LiveSegment segment, TurnUsage& usage);
  Status store(LiveSegment& segment, TurnUsage& usage);
  // Writes down what the segment's KV saw, before any of it is stored; the KV as it will be stored.
  Result<std::vector<std::byte>> begin_spill(LiveSegment& segment);
  Status put_passage(LiveSegment& segment, const PassageDraft& draft, TurnUsage& usage);
  Status store_kv_anew(LiveSegment& segment);
  std::string fingerprint_of(const LiveSegment& segment) const;
  void spill_front(Reply& reply);
  Result<std::vector<store::PagePin>> load_as_computed(int64_t passage, const store::Spill& spill,
                                                       int tokens);

  // --- conversation_text.cpp ---
  Result<store::MessageRow> message(const std::string& role, const std::string& text,
                                    const std::string& speaker, const std::string& time) const;
  // --- conversation_turn.cpp ---
  Status say_row(store::MessageRow message);  // keeps it durably and in `recent`
  Status end_open_turn(Reply& reply);         // an answer that never came
};

}  // namespace rhapsode
