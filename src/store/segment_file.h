// Segment files: append-only files of checksummed records, the only place where KV and routing codes lie.
//
// Format: docs/formats/segment.md. A file begins with a header page (magic, version, kind, a random id); each
// record begins at a multiple of the alignment (4 KiB for KV, 64 bytes for codes) and is described outside,
// in the catalog, by {segment, offset, bytes, checksum}. What lies behind the committed length is nobody's: a
// writer cuts it off when it opens the file. Sealed segments are never written again; erasing rewrites them.
// Durability: append() only writes; sync() makes everything durable, and only then may the caller publish it.
// A failed sync() leaves unknown what is on the disk: the writer refuses to go on, open the segment again.
// Errors: kCorrupt with file and offset when a checksum or header is wrong, kNoSpace when the disk is full
// (the file is cut back to what was there before). Threads: one writer; any number of readers of published
// records. Cost: one write a part and one of padding; XXH3 over the bytes (above 10 GB/s).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "io/file.h"
#include "io/page_cache_view.h"

struct XXH3_state_s;

namespace rhapsode::store {

enum class SegmentKind : uint8_t { kKv = 1, kCodes = 2 };

inline constexpr uint64_t kSegmentHeaderBytes = 4096;

// Where a record lies. Kept in the catalog.
struct Extent {
  int64_t segment = 0;  // the catalog's number of the file
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // XXH3-64 of the record's bytes
};

// The checksum of an extent, for readers that look at records through a mapping.
uint64_t record_checksum(std::span<const std::byte> bytes);

class SegmentWriter {
 public:
  // Creates the file (header written and synced, folder synced). A file of that name without records is
  // replaced; one with records is kInvalidArgument: whether it is a left-over only the catalog knows.
  static Result<SegmentWriter> create(const std::filesystem::path& path, SegmentKind kind);
  // Opens the file and cuts it to `committed_bytes`: bytes() as it was when the catalog last committed.
  static Result<SegmentWriter> open(const std::filesystem::path& path, SegmentKind kind,
                                    uint64_t committed_bytes);

  // Appends one record given in parts; extent.segment is left to the caller.
  Result<Extent> append(std::span<const std::span<const std::byte>> parts);
  Status sync();
  uint64_t bytes() const { return end_; }  // of the file, padding included
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  SegmentWriter(File file, SegmentKind kind, uint64_t end);
  Status write_record(std::span<const std::span<const std::byte>> parts);
  Status check_usable() const;

  File file_;
  uint64_t end_ = 0;
  uint64_t alignment_ = 64;
  bool sync_failed_ = false;
};

// One record after another, each read piece by piece and checked at its end: what a piece holds is not to be
// relied on before. Ownership: its room, kept from one record to the next. Threads: one at a time.
class RecordStream {
 public:
  RecordStream();
  ~RecordStream();
  RecordStream(const RecordStream&) = delete;
  RecordStream& operator=(const RecordStream&) = delete;

  uint64_t bytes() const { return extent_.bytes; }
  // The next so many bytes; gone with the next call. kCorrupt when the record does not have so many.
  Result<std::span<const std::byte>> next(size_t bytes);
  // Reads what is left of it. kCorrupt unless the whole record has its checksum.
  Status finish();

 private:
  friend class SegmentReader;
  const File* file_ = nullptr;
  Extent extent_;
  uint64_t read_ = 0;  // of its bytes
  std::unique_ptr<std::byte[]> room_;
  size_t room_bytes_ = 0;
  XXH3_state_s* sum_;
};

class SegmentReader {
 public:
  static Result<SegmentReader> open(const std::filesystem::path& path, SegmentKind kind);
  // Fills `bytes` (extent.bytes long) and checks them.
  Status read(const Extent& extent, std::span<std::byte> bytes) const;
  // kCorrupt when the extent cannot lie in this file: ask before making room for a length on trust.
  Status check(const Extent& extent) const;
  // Begins a record, which ends before this reader does. kCorrupt as of check().
  Status begin(const Extent& extent, RecordStream& stream) const;
  PageCacheView page_cache() const { return PageCacheView(file_); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  explicit SegmentReader(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace rhapsode::store
