// What is worth reading, judged from the first part of a source before the rest is read.
//
// A source that is too large, binary or minified costs one sample, not its size: memory is bounded by the
// limit in any case. Threads: any, one source at a time each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::text {

// Fills up to the span's bytes; 0 at the end.
using ByteSource = std::function<Result<size_t>(std::span<std::byte>)>;

struct GateOptions {
  uint64_t most_bytes = 0;
  std::optional<uint64_t> known_bytes;  // size by the file system or the archive's list, if known
  std::string head;                     // bytes already taken from the source
  bool any_content = false;             // judge nothing but the size: archives
};

struct GatedBytes {
  std::string bytes;
  std::string skip_reason;  // not empty: "binary", "minified", "larger than 64 MiB", "holds no text"
};

// Reads a source to its end, or only as far as it takes to see that it shall be skipped. Errors: the
// source's.
Result<GatedBytes> read_gated(const std::string& name, const ByteSource& source, GateOptions options);

// Why a name alone says that a file is machine-made ("minified"); empty: it does not.
std::string minified_name_reason(std::string_view name);
// Very long lines of code or data; prose may have long lines, tables, web pages and message lists as well.
bool looks_minified(std::string_view name, std::string_view content);

}  // namespace rhapsode::text
