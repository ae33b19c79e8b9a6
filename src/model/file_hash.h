// SHA-256 of files, remembered while they stay the same (by size and modification time).
//
// Cost: one pass (about 1.5 GB/s) the first time, one small read afterwards. Threads and processes: any;
// memories are replaced atomically. A memory that cannot be written costs the next caller a pass, nothing
// else.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace rhapsode::model {

// What tells cheaply that a hashed file is still the same.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);  // nothing unless a regular file

struct HashNote {
  FileStamp stamp;
  std::string sha256;
  std::string source;  // where the bytes came from, when known
};
std::optional<HashNote> read_note(const std::filesystem::path& note);
Status write_note(const std::filesystem::path& note, const HashNote& content);

// done and total bytes; false cancels.
using HashProgress = std::function<bool(uint64_t done, uint64_t total)>;

Result<std::string> hash_file(const std::filesystem::path& path, const HashProgress& on_progress);

// The hash of any file, out of HOME/hashes or made now. A file that changes while it is read is kIo.
Result<std::string> known_hash(const std::filesystem::path& path, const std::filesystem::path& home,
                               const HashProgress& on_progress = nullptr);

}  // namespace rhapsode::model
