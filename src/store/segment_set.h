// The segment files of a memory as one store of extents: routing/NNNNNN.seg (codes) and kv/NNNNNN.seg.
//
// The table `segments` says which files there are and how long; `code_extents` and `kv_extents` what of them
// is alive, `stale_extents` what is not any more. Appending goes to the newest segment until it is longer
// than `segment_bytes`, then to a new one. What an eviction frees is given back as a hole in the file where
// the file system can (KV is aligned to its blocks); else, and always for erasing, segments are rewritten.
// Ownership: views into code segments live until release_views(). Threads: one at a time. Errors: as in
// segment_file.h. All functions that change tables run inside the caller's transaction and become void with
// it: call discard() after a rollback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "store/segment_file.h"
#include "store/sqlite_database.h"

namespace rhapsode::store {

class SegmentSet {
 public:
  SegmentSet(Database& database, std::filesystem::path folder, uint64_t segment_bytes)
      : database_(database), folder_(std::move(folder)), segment_bytes_(segment_bytes) {}

  void set_segment_bytes(uint64_t bytes) { segment_bytes_ = bytes; }
  // Cuts every file to its committed length and removes files that no table names.
  Status recover();

  // --- Inside a transaction ---
  Result<Extent> append(SegmentKind kind, std::span<const std::byte> bytes);
  // Makes what was appended durable and records the lengths: call once before COMMIT.
  Status sync();
  // Copies what is alive in the segments into others and drops them from the tables; damaged extents are
  // dropped and counted in `damaged`. The files go with remove_dropped_files().
  Status rewrite(std::span<const int64_t> segments, int64_t* damaged);
  // Drops segments in which nothing is alive from the tables.
  Status drop_empty_segments();

  // --- After COMMIT, or after a rollback ---
  Status remove_dropped_files();
  void discard();

  // Gives the blocks of stale KV extents back, each in a small transaction of its own; false where the file
  // system has no holes.
  Result<bool> punch_stale();
  // Bytes of KV segments that take room: lengths without holes.
  Result<uint64_t> kv_bytes_on_disk();

  Status read(SegmentKind kind, const Extent& extent, std::span<std::byte> bytes);
  // What reads a segment, for several threads at once; sees what had been appended by now.
  Result<std::shared_ptr<const SegmentReader>> reader(SegmentKind kind, int64_t segment);
  // The same with room made for it, after a look at whether the file can hold so much.
  Result<std::vector<std::byte>> load(SegmentKind kind, const Extent& extent);
  // The bytes of a code extent in place, unchecked.
  Result<std::span<const std::byte>> view(const Extent& extent);
  void release_views();

  std::filesystem::path path_of(SegmentKind kind, int64_t segment) const;
  // What an extent takes in a file, padding included.
  static uint64_t room_of(SegmentKind kind, uint64_t bytes);

 private:
  struct Active {
    int64_t id = 0;
    SegmentWriter writer;
    uint64_t synced = 0;  // bytes that are durable and recorded
  };
  struct Dropped {
    SegmentKind kind;
    int64_t id = 0;
  };
  Result<Active*> active(SegmentKind kind);
  Status open_newest(SegmentKind kind);
  Status start_segment(SegmentKind kind);
  Status seal(SegmentKind kind);
  Status drop_segment(SegmentKind kind, int64_t segment);
  Status move_extents(SegmentKind kind, int64_t segment, int64_t* damaged);
  Status sweep_folder(SegmentKind kind);
  Result<bool> punch(const Extent& extent);
  std::optional<Active>& slot(SegmentKind kind) { return kind == SegmentKind::kKv ? kv_ : codes_; }

  Database& database_;
  std::filesystem::path folder_;
  uint64_t segment_bytes_;
  std::optional<Active> kv_;
  std::optional<Active> codes_;
  std::vector<Dropped> dropped_;  // by the transaction
  std::vector<Dropped> created_;  // by the transaction
  std::map<int64_t, std::shared_ptr<const SegmentReader>> readers_;
  std::map<int64_t, MappedFile> maps_;
  std::vector<MappedFile> outgrown_maps_;  // still viewed
};

}  // namespace rhapsode::store
