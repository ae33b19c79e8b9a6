// Rows of conversation_log.h: plain values.
//
// A conversation is one run of tokens, from 0 on; messages and passages are ranges of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/catalog_types.h"

namespace rhapsode::store {

// Kind of the sources that hold spilled passages, and the folder their names begin with:
// "chats/NAME/0000001".
inline constexpr std::string_view kConversationKind = "conversation";
inline constexpr std::string_view kConversationFolder = "chats/";

// The source that holds the passage `number` of a conversation.
std::string passage_source(std::string_view conversation, int64_t number);

struct ConversationRow {
  int64_t id = 0;
  std::string name;         // without the folder
  std::string forked_from;  // empty: from none
  std::string created;      // ISO 8601 UTC
  std::string vocabulary;   // what its token ids count in
  int64_t messages = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;     // of the messages' text
  int64_t passages = 0;  // spilled or ready to be
  int64_t edits = 0;     // how often something said was erased
};

// A message as it was said.
struct MessageRow {
  int64_t number = 0;  // from 0, in the order of saying
  int64_t turn = 0;
  std::string role;     // "user", "assistant"
  std::string speaker;  // empty: nobody said
  std::string said;     // ISO 8601
  std::string text;
  int64_t first_token = 0;
  std::vector<int32_t> tokens;  // as they stand in the context, the template's own among them
  int body_begin = 0;           // of these, those that are the text
  int body_end = 0;
  bool forgotten = false;    // its text was erased with what it was about
  std::vector<int64_t> saw;  // contents that were in view while it was computed; not filled by reading

  int64_t end_token() const { return first_token + static_cast<int64_t>(tokens.size()); }
};

// KV kept as it was computed, over other text.
struct Spill {
  std::string fingerprint;     // under which its extent lies: of the memory's and of what it saw
  std::string base;            // the memory's own when it was made
  int32_t first_position = 0;  // of its first token, in the frame it was computed in
};

// A range of a conversation that is a passage of the memory.
struct ConversationPassage {
  int64_t number = 0;
  int64_t passage = 0;
  int64_t content = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
  bool spilled = false;  // has KV as it was computed, if no cap has taken it
  Spill spill;
};

// Something the model said while a source was in view, or KV that had seen it.
struct DerivedMessage {
  std::string conversation;
  int64_t number = 0;
  std::string said;
  std::string text;
};

}  // namespace rhapsode::store
