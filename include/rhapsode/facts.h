// Facts: what people say of themselves and the world, written back into a memory as records with provenance.
//
// A fact is one attribute of one subject ("Ana", "favourite tea") in the scope of one user. It is a source of
// the memory, "facts/SUBJECT/ATTRIBUTE" ("@USER/facts/..." for a user's own), whose versions are its values:
// so values are found and cited like any text, Memory::forget() erases them, and `as_of` and `history` look
// back. A new value supersedes the old one of the same subject, attribute and scope, and nothing else.
// find_facts() reads statements, changes ("now"), corrections ("actually ..., not ...") and retractions
// ("forget that", "no longer") out of a message by rules for English; what they do not catch, the model can
// look for. Dates in a message count from its stamp, never from today. Ownership and threads: plain values;
// functions over a memory or an engine as those. Errors: as Memory's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/engine.h"
#include "rhapsode/result.h"

namespace rhapsode {

class Memory;

enum class FactAction : uint8_t {
  kStated,     // so from its time on
  kCorrected,  // what was recorded before was wrong: takes its place and its time
  kRetracted,  // not so any more, or not said
};
const char* to_string(FactAction action);  // "stated", "corrected", "retracted"

struct FactStatement {
  FactAction action = FactAction::kStated;
  std::string subject;    // "Ana"; names are compared without regard to case
  std::string attribute;  // "favourite tea"
  std::string value;      // "mint"; empty when retracted
  std::string
      sentence;  // what the memory will hold: "Ana's favourite tea is mint."; empty: made of the above
  std::string
      event_time;  // ISO 8601: since (or until) when; empty: when it was told, or unknown without that
  // Provenance. The key is made of user, message and place in it; a message without id is known by its words.
  std::string user;     // whose fact it is; empty: everybody's
  std::string message;  // id
  std::string speaker;
  std::string told;                // ISO 8601; empty: unknown
  std::string quote;               // the words it was taken from
  std::string made_by = "caller";  // "rule", "model", "caller"
};

struct FactInfo {
  FactAction action = FactAction::kStated;
  std::string source;  // of the memory
  std::string user;
  std::string subject;
  std::string attribute;
  std::string value;
  std::string quote;
  std::string message;
  std::string speaker;
  std::string told;
  std::string made_by;
  std::string event_time;  // as far as known
  int version = 0;         // of the source; 0: a retraction
  std::string valid_from;
  std::string valid_to;  // empty: to now
  bool current = false;
};

struct FactReport {
  int recorded = 0;
  int known = 0;                      // told before: nothing changed
  int superseded = 0;                 // values that were current and are not any more
  std::vector<FactInfo> facts;        // those recorded
  std::vector<std::string> problems;  // one sentence each: a retraction of what nobody recorded, ...
  uint64_t evaluated_tokens = 0;      // to encode them
};

// One message of a conversation.
struct HeardMessage {
  std::string text;
  std::string speaker;  // "Ana": who "I" is; empty: the user
  std::string stamp;    // ISO 8601; empty: unknown, and then dates in it are unknown too
  std::string id;
  std::string user;  // whose facts they are; empty: everybody's
};

// By rules, without a model; in the order of the text. `known`: facts of the same user, for "forget that" and
// "actually ..." (newest last; Memory::facts() gives them). Cost: O(text).
std::vector<FactStatement> find_facts(const HeardMessage& message, const std::vector<FactInfo>& known = {});

struct FactReading {
  std::vector<FactStatement> statements;
  int prompt_tokens = 0;
  int generated_tokens = 0;
};
// By the engine's model, which answers under a JSON schema: one generation. What it says is kept only where
// its value stands in the message.
Result<FactReading> ask_model_for_facts(Engine& engine, const HeardMessage& message);

struct RememberOptions {
  Engine* model = nullptr;  // asked where rules find nothing; null: never
};
struct RememberReport {
  FactReport report;
  int generations = 0;  // of the model, and what they cost
  int prompt_tokens = 0;
  int generated_tokens = 0;
};
// Finds and records what a message says.
Result<RememberReport> remember(Memory& memory, const HeardMessage& message,
                                const RememberOptions& options = {});

}  // namespace rhapsode
