// Page bounds: an upper limit of every score in a group of slots, without reading the group's keys.
//
// For a query q rotated into the page's frame and every filled slot j of a group,  q . k_j <= q . c + e(q) .
// r:
//   box    c, r: centre of and half the distance between the smallest and the largest key in each dimension;
//          e(q) = |q| by dimension. The bound of Quest's minima and maxima (arXiv 2406.10774).
//   ball   c: mean of the keys; r: the largest distance of a key from c, one number; e(q) = ||q||.
//   mean   c: mean of the keys, r: the largest distance in each dimension. |q| . r / 4 is added instead of
//   |q| . r:
//          an estimate of a good score, not a bound. It chooses better than either (docs/results.md).
// So a bound is one dot product of the extended query (q, e(q)) with a stored row (c, r). Rows are float16; r
// is rounded up, and measured from the rounded c, so the inequality holds exactly. A page's rows of one head
// lie side by side, [width][groups], padded with zeros to whole vectors; heads and layers follow one another.
// Keys beyond float16 give an infinite or undefined bound: such a group counts as the best of all.
//
// Who computes them: the first pass that needs them, once a page; a pass that writes a slot of the page makes
// them void. Ownership: storage belongs to the page pool, beside the page. Threads: a page's bounds are
// touched by one back end only, during its passes. Cost: computing reads K once; memory 2 * width / 64 bytes
// a slot and head at 64 slots a group (1.6 % of f16 pages for boxes, 0.8 % for balls), four times that at 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context_plan.h"
#include "kernels/page.h"

namespace rhapsode::kernels {

struct AttendSite;

enum class BoundKind : uint8_t { kBox, kBall, kMean };

const char* to_string(BoundKind kind);

struct BoundsShape {
  BoundKind kind = BoundKind::kBox;
  int group_slots = kKeyGroup;  // slots under one bound, read together: 16, 32 or 64

  int groups() const { return kPageTokens / group_slots; }
  int width(int head_dim) const { return kind == BoundKind::kBall ? head_dim + 1 : 2 * head_dim; }
  float radius_weight() const { return kind == BoundKind::kMean ? 0.25f : 1.0f; }
  // float16 numbers of one head of one page: a multiple of 16.
  int row_elements(int head_dim) const { return (width(head_dim) * groups() + 15) / 16 * 16; }
  size_t head_bytes(const KvShape& shape) const {
    return sizeof(uint16_t) * static_cast<size_t>(row_elements(shape.head_dim));
  }
  size_t block_bytes(const KvShape& shape) const {
    return head_bytes(shape) * static_cast<size_t>(shape.kv_heads) * static_cast<size_t>(shape.layers);
  }
  bool operator==(const BoundsShape&) const = default;
};

// Which readers share one choice of slots.
enum class SelectionScope : uint8_t {
  kKvHead,  // every KV head of a layer chooses its own
  kLayer,   // all heads of a layer read the same slots
};

// How decode rows under a read budget (SequencePlan::read_budget) choose what they read. Of the groups of
// slots that a row can see it reads, up to the budget:
//   always  the first page, sinks, the last kRecentPages pages that it can see, and pages written in this
//   pass; then    the groups with the largest bounds. A bound of a query head counts relative to that head's
//   largest,
//           and a group counts by its best head, since the heads that share a choice differ in scale. Ties go
//           to the earlier group.
// Everything is read, by the very path of a row without a budget, when the row sees no more than its budget.
struct SparseOptions {
  BoundsShape bounds;
  SelectionScope scope = SelectionScope::kKvHead;
};

inline constexpr int kRecentPages = 2;

// The bounds of one head of a page, [row_elements] float16. The page has room for them.
inline uint16_t* bounds_of_head(const KvShape& shape, const BoundsShape& bounds, const Page& page, int layer,
                                int kv_head) {
  const auto index =
      static_cast<size_t>(layer) * static_cast<size_t>(shape.kv_heads) + static_cast<size_t>(kv_head);
  return reinterpret_cast<uint16_t*>(page.bounds->data + index * bounds.head_bytes(shape));
}

// The slots of group `group`, as a mask.
inline uint64_t group_mask(const BoundsShape& bounds, int group) {
  const uint64_t slots = bounds.group_slots == kPageTokens ? ~0ull : (1ull << bounds.group_slots) - 1;
  return slots << (group * bounds.group_slots);
}

// What one row reads always, by reference; see SparseOptions. `visible`: the slots it sees of each reference.
std::vector<bool> always_read(std::span<const PageReference> references, std::span<const uint64_t> visible,
                              std::span<const RowWrite> writes);

namespace reference {

// Computes the bounds of the first page->count slots in one layer, all KV heads.
void bound_page(const KvShape& shape, const BoundsShape& bounds, const Page& page, int layer);

// The bound of q . k over one group, in double precision; q is in the page's frame.
double score_bound(const KvShape& shape, const BoundsShape& bounds, const uint16_t* row, int group,
                   std::span<const double> q);

struct SparseRow {
  const float* q = nullptr;  // [heads][head_dim], not rotated
  int32_t position = 0;
  int32_t budget = 0;  // tokens
  std::span<const PageReference> references;
  std::span<const RowWrite> writes;  // of the pass
};
// What the row reads for each KV head, as narrower references: [kv_heads][...]. Pages carry bounds.
std::vector<std::vector<PageReference>> select(const KvShape& shape, const SparseOptions& options,
                                               const AttendSite& site, const SparseRow& row);

}  // namespace reference

}  // namespace rhapsode::kernels
