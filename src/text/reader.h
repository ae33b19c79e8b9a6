// Readers: files, folders, archives and standard input to Documents, one at a time.
//
// read_document() decides by content first, then by name. scan_sources() walks what the user named: folders
// recursively, honouring .gitignore files; symbolic links are followed once and loops are seen; binaries,
// minified and over-long-lined files and files above the size limit are skipped; archives (zip, tar, gz, ...)
// are opened by member. Every skip is reported with its reason; one bad source never stops the others.
// Nothing is executed from or outside of the sources. Errors of single sources go to on_skip; a Result error
// means that the whole scan cannot go on. Threads: any; callbacks run on the caller's.
// Memory: one source's bytes and text at a time (limit: most_source_bytes).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/document.h"

namespace rhapsode::text {

// `name` is what the user sees and what the kind is guessed from. kUnsupported: binary or unknown; kCorrupt:
// damaged; kNotFound with "no text" for what holds none (empty, spaces, only NUL, a scan without text).
Result<Document> read_document(std::string name, std::string bytes);

struct ScanOptions {
  uint64_t most_source_bytes = 64ull << 20;
  uint64_t most_archive_bytes =
      1ull << 30;            // expanded; an archive that is large itself may have 200 times its size
  bool ignore_files = true;  // honour .gitignore
  bool hidden = false;       // enter files and folders whose name begins with a dot
};

struct SourceBytes {
  std::string name;  // the path as the user would write it, '/' before an archive's member
  std::string bytes;
  std::string modified;  // ISO 8601 time of the file in UTC; empty: unknown
};

struct Skip {
  std::string name;
  std::string reason;  // "binary", "minified", "larger than 64 MiB", "not readable: Permission denied", ...
};

struct ScanCallbacks {
  std::function<bool(SourceBytes)> on_source;  // return false to stop the scan
  std::function<void(Skip)> on_skip;
  // Called with names only, before anything is read, when set: lets a caller count what is to come.
  std::function<void(const std::string& name, uint64_t bytes)> on_found;
};

// "-" is standard input. A path that does not exist is an error before anything is read.
Status scan_sources(std::span<const std::string> paths, const ScanOptions& options,
                    const ScanCallbacks& callbacks);

}  // namespace rhapsode::text
