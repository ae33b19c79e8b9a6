// Names of what the headers of memories enumerate: in the library, and in stand-ins for it.
#include "rhapsode/answer.h"
#include "rhapsode/facts.h"
#include "rhapsode/memory_options.h"

namespace rhapsode {

const char* to_string(ReadPolicy policy) {
  constexpr const char* kNames[] = {"auto", "full", "prefix", "reuse", "blend", "reorder"};
  return kNames[static_cast<int>(policy)];
}

const char* to_string(BlendSelector selector) {
  constexpr const char* kNames[] = {"attention",      "first",     "last",     "attention+first",
                                    "attention+last", "deviation", "boundary", "random"};
  return kNames[static_cast<size_t>(selector)];
}

const char* to_string(RankBy rank) {
  constexpr const char* kNames[] = {"auto", "fused", "evidence"};
  return kNames[static_cast<size_t>(rank)];
}

const char* to_string(KvTier tier) {
  constexpr const char* kNames[] = {"text", "disk", "memory"};
  return kNames[static_cast<int>(tier)];
}

const char* to_string(RouteCause cause) {
  constexpr const char* kNames[] = {"question", "hop", "tokens", "sentence", "entropy", "attention"};
  return kNames[static_cast<size_t>(cause)];
}

const char* to_string(FactAction action) {
  constexpr const char* kNames[] = {"stated", "corrected", "retracted"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace rhapsode
