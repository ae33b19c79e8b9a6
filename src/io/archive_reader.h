// The members of an archive one after the other, streamed out by libarchive: zip, tar and 7z, tar also
// compressed (gzip, bzip2, xz, lzma, zstd, lz4, Unix compress), and single compressed files.
//
// Decompression happens in this process only: no helper program is ever started, and nothing is written.
// Ownership: move-only; the descriptor or the bytes must outlive the reader. Threads: one. Memory:
// libarchive's windows (xz and zstd: what the archive asks for, up to 1 GiB by its limits), not the members.
// Errors: kCorrupt with the archive's label; kUnsupported for what is no such archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

struct archive;

namespace rhapsode {

struct ArchiveMember {
  std::string name;                   // as stored, any bytes; empty where the archive gives none
  bool is_single = false;             // no archive but one compressed file, which has no name in it
  bool is_file = false;               // a regular file
  bool is_folder = false;             // neither: a link or a device
  std::optional<uint64_t> bytes;      // if the archive says so
  std::optional<int64_t> modified_s;  // since 1970, UTC
};

class ArchiveReader {
 public:
  // Reads the file from its start and moves its position.
  static Result<ArchiveReader> open(int descriptor, std::string label);
  static Result<ArchiveReader> open(std::span<const std::byte> bytes, std::string label);

  // Goes to the next member; nothing: that was the last one.
  Result<std::optional<ArchiveMember>> next();
  // Up to bytes.size() bytes of the current member; 0 at its end.
  Result<size_t> read(std::span<std::byte> bytes);
  // True when a member that is not read must be decompressed nevertheless (tar); zip seeks past it.
  bool is_stream() const;
  // Decompressed bytes up to the end of the current member: of skipped ones as well where is_stream().
  uint64_t expanded_bytes() const;

 private:
  struct Free {
    void operator()(::archive* handle) const;
  };
  static Result<ArchiveReader> make(std::string label);
  Error damaged() const;

  std::unique_ptr<::archive, Free> handle_;
  std::string label_;
  std::shared_ptr<void> utf8_locale_;
  uint64_t read_bytes_ = 0;
  uint64_t ahead_bytes_ = 0;  // of the current member, as far as it says
};

// True when the first bytes (512 are enough) are those of an archive or compressed file.
bool is_archive(std::string_view head);

}  // namespace rhapsode
