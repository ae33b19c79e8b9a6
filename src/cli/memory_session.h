// A command's memory, open: the folder found, its model loaded, what the user named checked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/command.h"
#include "cli/memory_place.h"
#include "rhapsode/memory.h"

namespace rhapsode::cli {

enum class MemoryUse : uint8_t {
  kCatalog,  // what is stored, without the model; any number at a time
  kLook,     // any number at a time; an answer stores the KV that it had to make all the same
  kChange,   // one at a time
  kMake,     // the same, made where it does not exist
};

struct MemorySession {
  MemoryPlace place;
  bool made = false;               // did not exist before
  std::unique_ptr<Engine> engine;  // null: kCatalog
  std::unique_ptr<Memory> memory;  // refers to the engine
};

// The model is the memory's own, unless --model stands on the command line; that of a new memory is what
// `generate` would run. Where no memory is, kNotFound says how to make one.
Result<MemorySession> open_session(Invocation& invocation, const MemoryPlace& place, MemoryUse use);
// The same at the place that find_memory() tells.
Result<MemorySession> open_session(Invocation& invocation, MemoryUse use);

// The filter's sources and tags exist. Otherwise kNotFound, with the name that was probably meant.
Status check_filter(Memory& memory, const SourceFilter& filter);
// The memory's own error about a source that it does not hold, with the name that was probably meant.
Error explain_unknown(Memory& memory, const std::string& source, const SourceFilter& filter,
                      const Error& error);

// The source meant by `given`: one that ends in it ("guide.md" of "docs/guide.md"), else the most alike by
// its name or its last part; empty when none is close.
std::string nearest_source(const std::string& given, const std::vector<std::string>& sources);

}  // namespace rhapsode::cli
