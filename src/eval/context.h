// The ways of putting text before a question, whose results are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::eval {

enum class Context : uint8_t {
  kClosed,  // nothing but the question
  kGold,    // the evidence alone, as text
  kFull,    // the question's own passages, as text
  kReuse,   // the same passages from stored KV
  kRouted,  // what the memory finds by all its signals, from stored KV
  kBm25,    // what it finds by keywords
  kLatent,  // what it finds by the model's own signal
};

const char* to_string(Context context);  // "closed", "gold", ...
std::optional<Context> context_named(std::string_view name);

// "closed,full,reuse", in the order in which they run: full before what is compared with it.
Result<std::vector<Context>> parse_contexts(std::string_view names);

// Found by searching the memory, hence with a ranking.
inline bool is_searched(Context context) {
  return context >= Context::kRouted;
}

}  // namespace rhapsode::eval
