// The context plan: what each sequence of a batch attends to in one pass, and where its new keys and values
// go.
//
// Shapes: a batch has `rows` query rows (tokens), grouped by sequence. A sequence owns the rows
// [row_begin, row_begin + row_count) and an ordered list of page references per layer. Built and validated on
// the host once per pass, then only read by the kernels. Visibility of slot j of reference g for a row at
// position p (design: "the one mechanism"):
//
//   mask_g has j  and  shift_g + pos_g[j] <= p  and  (window = 0 or p - shift_g - pos_g[j] < window or g is a
//   sink)
//
// New rows see one another because the pages they are written to are referenced too: writing happens before
// reading. Threads: const after validate(); any number of readers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/page.h"

namespace rhapsode::kernels {

struct PageReference {
  const Page* page = nullptr;
  int32_t shift = 0;      // the position that frame position 0 takes for this reader; may be negative
  bool sink = false;      // stays visible outside of a window
  uint64_t mask = ~0ull;  // slots that are visible; slots >= page->count + new writes never are
};

// Where the K/V of one row go. The frame position is page->positions[slot].
struct RowWrite {
  Page* page = nullptr;  // null: this row's K/V are not kept (it attends only to what is there)
  int32_t slot = 0;
  // The slot is filled, with what a memory stored of the same token; else it is written the first time. The
  // page is read by this sequence alone.
  bool replaces = false;
};

struct SequencePlan {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  std::vector<PageReference> references;  // read by every layer that has no list of its own
  // Optional: lists for single layers. own_lists[own_index[layer]] replaces `references` where own_index >=
  // 0.
  std::vector<int16_t> own_index;
  std::vector<std::vector<PageReference>> own_lists;
  // Tokens that a decode step reads at most in each layer and KV head; 0: all that it sees. Approximate: see
  // SparseOptions in page_bounds.h. Only for sequences of one row over pages with room for bounds.
  int32_t read_budget = 0;

  std::span<const PageReference> of_layer(int layer) const {
    if (own_index.empty() || own_index[layer] < 0) return references;
    return own_lists[own_index[layer]];
  }
};

struct BatchPlan {
  std::vector<SequencePlan> sequences;
  std::vector<int32_t> positions;  // [rows]
  std::vector<RowWrite> writes;    // [rows]

  int rows() const { return static_cast<int>(positions.size()); }
};

// Positions, shifted or not, lie within +-kMaxPosition: rope tables stay bounded and no sum overflows.
inline constexpr int32_t kMaxPosition = 1 << 26;

// Refuses a plan that a kernel could not run safely or would run on bytes that nobody wrote: rows not covered
// exactly once; null pages; positions out of range; slots that are out of range, sealed, left out or written
// twice; a page written by two sequences, or new slots of it seen by another one; masks (other than 0) of
// which no slot is ever filled; a row that could see nothing (windows aside: they belong to layers); wrong
// layer lists; a read budget for more than one row or over pages without bounds. O(rows + references).
Status validate(const BatchPlan& plan, const KvShape& shape);

// The slots of `reference` that a row at `position` may see; `filled` = slots that hold data when attention
// runs.
uint64_t visible_slots(const PageReference& reference, int filled, int32_t position, int32_t window);

}  // namespace rhapsode::kernels
