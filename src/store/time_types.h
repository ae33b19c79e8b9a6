// Rows and records of catalog.h about time: supersessions and facts. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace rhapsode::store {

// What a document, or the user who adds it, says of two sources: the newer one takes the older one's place.
struct SupersessionClaim {
  bool reverse = false;  // this source is superseded by the other one, instead of superseding it
  // The other: a source's name, a path from this one's folder (its ending may be left out), or an identifier.
  std::string reference;
  bool by_user = false;
  bool operator==(const SupersessionClaim&) const = default;
};

// A supersession as a selection sees it: both sources are there, or `problem` says why nothing follows.
struct SupersessionRow {
  std::string older;  // a source's name; the reference when it is the unknown one
  std::string newer;
  std::string since;    // ISO 8601: the event time of the newer one, else when it was added
  std::string problem;  // empty, or "unknown" or "cycle"
};

enum class FactAction : uint8_t { kStated, kCorrected, kRetracted };

// One thing said about one attribute of one subject. A fact is a source; its values are its versions.
struct FactEvent {
  std::string key;  // of the message and the statement in it: what is told twice is recorded once
  FactAction action = FactAction::kStated;
  std::string subject;
  std::string attribute;
  std::string value;      // empty when retracted
  std::string statement;  // as it was said
  std::string message;    // its id
  std::string speaker;
  std::string told;     // ISO 8601; empty: unknown
  std::string made_by;  // "rule", "model", "caller"
};

struct FactRow {
  FactEvent event;
  int64_t id = 0;
  std::string source;
  std::string user;
  int version = 0;         // that it made or confirmed; 0: it ended one
  std::string event_time;  // since when it is so, as far as known
  std::string valid_from;  // of the version; empty: retracted
  std::string valid_to;    // empty: current, or none
  bool current = false;
};

}  // namespace rhapsode::store
