// The vector kernels of attend, one set per instruction set, behind plain function pointers.
//
// A block is up to kBlockRows rows (query x head) of one KV head; its references are pages that all of its
// rows may see in part. States are in base 2: max and sum belong to scores times log2(e), so that weights are
// powers of two. For every row the order of operations depends on nothing but that row's own keys: not on its
// neighbours in the block, the number of rows, or how many slots of a page are filled. Bytes are equal
// wherever it is computed. Memory: all of it comes from the caller; slots that nobody sees are read at most
// into lanes that are discarded. Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/attend.h"
#include "kernels/context_plan.h"
#include "kernels/page.h"

namespace rhapsode::kernels::cpu {

inline constexpr int kBlockRows = 48;

// A page reference with everything that does not depend on the row worked out.
struct ResolvedReference {
  PageReference reference;  // mask: only slots that hold data
  int32_t lowest = 0;       // positions of the visible slots, as this reader sees them
  int32_t highest = -1;     // below lowest: nothing is visible to anybody
};

// Rows of one block. q and out point at this row's head; lse may hold null pointers.
struct BlockRows {
  int count = 0;
  int32_t lowest = 0;  // positions of the rows
  int32_t highest = 0;
  int32_t positions[kBlockRows];
  const float* q[kBlockRows];
  float* out[kBlockRows];
  float* lse[kBlockRows];
};

struct BlockTask {
  const KvShape* shape = nullptr;
  const AttendSite* site = nullptr;
  int kv_head = 0;
  const BlockRows* rows = nullptr;
  std::span<const ResolvedReference> references;
};

// max [rows], sum [rows], out [rows][head_dim]; sum = 0 marks an empty state.
struct BlockState {
  float* max = nullptr;
  float* sum = nullptr;
  float* out = nullptr;
};

// Working memory of one thread, each part on a 64-byte boundary.
struct Scratch {
  float* q = nullptr;           // [kBlockRows][head_dim] rotated and scaled
  float* weights = nullptr;     // [kBlockRows][64] scores, then weights
  float* tile = nullptr;        // [64 * head_dim] K or V of one page, widened
  float* lanes = nullptr;       // [kBlockRows][16] sums by lane
  float* rescale = nullptr;     // [kBlockRows]
  float* row = nullptr;         // [256] one K or V row on its way into a page
  uint64_t* visible = nullptr;  // [kBlockRows]
};

// One row of K and V of one KV head on its way into a page.
struct HeadWrite {
  const KvShape* shape = nullptr;
  const AttendSite* site = nullptr;
  RowWrite target;
  int kv_head = 0;
  const float* k = nullptr;
  const float* v = nullptr;
};

struct AttendKernels {
  const char* target = "";
  // Attention of the block over its references, as a state that is not normalised.
  void (*attend)(const BlockTask& task, const Scratch& scratch, const BlockState& state) = nullptr;
  // Merges `part` into `into`, row by row. A state that is empty changes nothing.
  void (*fold)(const BlockState& into, const BlockState& part, int rows, int head_dim) = nullptr;
  // Normalises a state into rows.out and rows.lse.
  void (*finish)(const BlockState& state, const BlockRows& rows, int head_dim) = nullptr;
  // Adds each slot's probabilities, summed over the block's rows, to mass [references][64]. Needs rows.lse.
  void (*mass)(const BlockTask& task, const Scratch& scratch, double* mass) = nullptr;
  void (*write)(const HeadWrite& write, float* row) = nullptr;
};

// The kernels that attend() uses: the best instruction set of this CPU, or the forced one.
const AttendKernels& attend_kernels();

// True if some row at [rows.lowest, rows.highest] may see some slot of the reference.
inline bool may_see(const ResolvedReference& resolved, int32_t lowest, int32_t highest, int32_t window) {
  if (resolved.highest < resolved.lowest || highest < resolved.lowest) return false;
  return window == 0 || resolved.reference.sink || lowest - resolved.highest < window;
}

// True if every row sees every slot of the reference's mask.
inline bool all_see(const ResolvedReference& resolved, int32_t lowest, int32_t highest, int32_t window) {
  if (lowest < resolved.highest) return false;
  return window == 0 || resolved.reference.sink || highest - resolved.lowest < window;
}

}  // namespace rhapsode::kernels::cpu
