// One immutable segment of the approximate index: for each anchor, the passages that come close to it.
//
// A passage is listed under the anchors with which one of its chunks has the largest dot products
// (`postings_a_chunk` of them for each of its chunks), together with that dot product above what chance
// gives, in 255 steps: its *impact*. A question's token then raises, for each anchor near it, the passages
// listed there; what a passage gathers over the tokens estimates its exact score (code_scan.h) without
// touching a code. At most 65,536 passages a segment, so that a posting takes 3 bytes and the sums of one
// segment stay in a core's cache. Ownership: the segment owns its lists; files: docs/formats/index.md.
// Threads: const functions from any. Cost: building 10 us a chunk at 4,096 anchors and d = 896; adding a list
// 1 ns a posting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "index/anchor_set.h"
#include "index/code_scan.h"
#include "io/batch_reader.h"

namespace rhapsode::index {

inline constexpr size_t kMostSegmentPassages = 65536;

struct ListOptions {
  int postings_a_chunk = 20;
  int threads = 1;
};

// The passages of one anchor: numbers in the segment, ascending, and their impacts (1 to 255).
struct Postings {
  std::span<const uint16_t> passages;
  std::span<const uint8_t> impacts;
};

// A bit for each passage of a segment.
class PassageBits {
 public:
  PassageBits() = default;
  explicit PassageBits(size_t passages, bool value = false);
  size_t size() const { return size_; }
  bool test(size_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void clear(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  size_t count() const;
  std::span<const uint64_t> words() const { return words_; }
  std::span<uint64_t> words() { return words_; }

 private:
  size_t size_ = 0;
  std::vector<uint64_t> words_;
};

class ImpactLists;

// A segment to merge and those of its passages that go on living.
struct MergePart {
  const ImpactLists* lists = nullptr;
  const PassageBits* live = nullptr;
};

// Lists that were asked for, in that order. They point into the segment, or into `buffer` if it lies on disk.
struct FetchedLists {
  std::vector<Postings> lists;
  std::vector<std::byte> buffer;
};

class ImpactLists {
 public:
  // `passages`: ids ascending, codes of the anchors' dimensions; those without chunks are in no list.
  // kInvalidArgument for more than a segment holds, or ids that do not ascend.
  static Result<ImpactLists> build(const AnchorSet& anchors, std::span<const PassageCodes> passages,
                                   const ListOptions& options);
  // One segment of the living passages of several: what build() gives for these passages. No passage may live
  // in two parts, and all parts are of one set of anchors.
  static Result<ImpactLists> merge(std::span<const MergePart> parts);
  // The segment in a file that save() wrote; its lists stay on the disk unless `resident`. kCorrupt, with the
  // path, for anything else and for lists of other anchors.
  static Result<ImpactLists> load(const std::filesystem::path& path, const AnchorSet& anchors, bool resident);
  // Durable, under its name only when complete.
  Status save(const std::filesystem::path& path) const;

  std::span<const int64_t> ids() const { return ids_; }
  size_t anchors() const { return begins_.size() - 1; }
  uint64_t postings() const { return begins_.back(); }
  size_t list_size(size_t anchor) const { return begins_[anchor + 1] - begins_[anchor]; }
  // kCorrupt, with the path, when a list on the disk is damaged.
  Result<FetchedLists> fetch(std::span<const size_t> anchors) const;
  // What it takes in memory if resident, and, but for the header, on the disk.
  uint64_t bytes() const;

 private:
  Postings resident_list(size_t anchor) const;
  Result<std::vector<std::byte>> encode() const;
  static Result<ImpactLists> of_header(std::span<const std::byte> header, const AnchorSet& anchors,
                                       const std::string& path);
  Status check_list(size_t anchor, std::span<const std::byte> bytes, const std::string& path) const;
  Status take_lists(std::span<const std::byte> bytes, const std::string& path);

  uint64_t anchor_id_ = 0;
  std::vector<int64_t> ids_;
  std::vector<uint32_t> begins_;    // [anchors + 1]
  std::vector<uint16_t> passages_;  // empty when the lists lie on the disk
  std::vector<uint8_t> impacts_;
  std::vector<uint32_t> checksums_;  // [anchors] of a file's lists
  std::shared_ptr<const BatchReader> file_;
};

// Sums of impacts of one segment's passages for one question. One thread's.
class ImpactSums {
 public:
  void begin(size_t passages);
  void begin_token();
  // Raises what the token has given each listed passage to impact * factor.
  void add(const Postings& list, uint32_t factor);
  std::span<const uint32_t> sums() const { return sums_; }
  std::vector<uint32_t> take() { return std::move(sums_); }

 private:
  std::vector<uint32_t> sums_;   // [passages] over tokens
  std::vector<uint32_t> token_;  // [passages] of the token at hand
};

}  // namespace rhapsode::index
