// The ways of putting text before a question, whose results are compared: what is read, and how.
//
// Written KIND or KIND:READING. A kind is closed (nothing), gold (the evidence alone), own (the question's
// own passages; full and reuse are short for own:full and own:reuse), or what a search finds: messages (BM25
// over single messages of a conversation, without the memory), routed (all signals), bm25 (keywords), latent
// (the model's own), judged (routed, its best judged again), chain (judged, with a chain of evidence in
// front), each also with "+links" behind it; linked is short for routed+links. A reading is full, prefix,
// reorder, reuse, or blend[=SELECTOR[@PERCENT]], as "routed:blend=attention+first@15". With "+again" at the
// end, passages are looked for again within the answer: of all searched kinds but messages, bm25 and latent.
// Plain values; threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rhapsode/memory_options.h"

namespace rhapsode::eval {

struct Context {
  enum class Kind : uint8_t {
    kClosed,
    kGold,
    kOwn,
    kMessages,
    kRouted,
    kBm25,
    kLatent,
    kJudged,
    kChain,
    kEvidence,
    kJudgedEvidence
  };

  Kind kind = Kind::kClosed;
  // kAuto: as the evaluation's --policy says (searched kinds), or as text (closed, gold).
  ReadPolicy policy = ReadPolicy::kAuto;
  BlendSelector selector = BlendSelector::kAttentionFirst;  // of blend
  double percent = 15;
  int rounds = 1;
  bool links = false;  // of searched kinds: links are followed
  bool again = false;  // passages are looked for again within the answer

  bool operator==(const Context&) const = default;

  static const Context kClosed, kGold, kFull, kReuse, kMessages, kRouted, kBm25, kLatent;
};

inline constexpr Context Context::kClosed{Kind::kClosed};
inline constexpr Context Context::kGold{Kind::kGold};
inline constexpr Context Context::kFull{Kind::kOwn, ReadPolicy::kFull};
inline constexpr Context Context::kReuse{Kind::kOwn, ReadPolicy::kReuse};
inline constexpr Context Context::kMessages{Kind::kMessages};
inline constexpr Context Context::kRouted{Kind::kRouted};
inline constexpr Context Context::kBm25{Kind::kBm25};
inline constexpr Context Context::kLatent{Kind::kLatent};

std::string to_string(const Context& context);  // "closed", "full", "own:blend=first@5", ...
std::optional<Context> context_named(std::string_view name);

// "closed,full,reuse", in the order in which they run: full before what is compared with it.
Result<std::vector<Context>> parse_contexts(std::string_view names);

// The order in which contexts run: what reads text first, as others are compared with it.
bool runs_before(const Context& a, const Context& b);

// Found by searching the memory, hence with a ranking.
inline bool is_searched(const Context& context) {
  return context.kind >= Context::Kind::kMessages;
}

}  // namespace rhapsode::eval
