// attend: the one attention operation, for prefill, decode, reuse, blending and routed memory.
//
//   score(i, j) = scale * rotate(q_i, p_i - shift_g) . k_j     then soft_cap * tanh(score / soft_cap) if
//   soft_cap > 0 out_i       = sum_j softmax_j(score(i, j)) v_j             over the slots visible to row i
//   (context_plan.h)
//
// The query is rotated into each page's frame; pages are never rewritten. Grouped-query attention: heads /
// kv_heads query heads read one KV head. A row that sees nothing gets out = 0 and lse = -inf. Shapes
// (float32, row-major): q, out [rows][heads][head_dim] with a row stride; lse [rows][heads]. mass_* are sums
// of attention probabilities over all rows and heads: [references], [references][64]. Backends:
// reference/attend.cpp (double precision, plain loops, the meaning of the op), cpu/attend.cpp (Highway SIMD).
// Errors: none at run time; plans are validated before. Threads: calls with disjoint outputs may run at once.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context_plan.h"
#include "kernels/page.h"
#include "kernels/rope.h"

namespace rhapsode::kernels {

// What a model fixes for one layer.
struct AttendLayer {
  int heads = 0;
  float scale = 1.0f;
  int32_t window = 0;     // 0: unlimited
  float soft_cap = 0.0f;  // 0: none
  RopeSpec rope;
};

// One layer at run time, as a single call needs it.
struct AttendSite {
  int layer = 0;
  int heads = 0;
  float scale = 1.0f;
  int32_t window = 0;     // 0: unlimited
  float soft_cap = 0.0f;  // 0: none
  const RopeTable* rope = nullptr;
};

// The rows of one sequence in one layer. Slots below page->count are filled, those of these very rows
// included.
struct AttendRows {
  const float* q = nullptr;
  int64_t q_stride = 0;  // floats from row to row
  std::span<const int32_t> positions;
  std::span<const PageReference> references;
  float* out = nullptr;
  int64_t out_stride = 0;
  float* lse = nullptr;                  // optional
  double* mass_per_reference = nullptr;  // optional, added to
  double* mass_per_token = nullptr;      // optional, added to
};

namespace reference {
void attend(const KvShape& shape, const AttendSite& site, const AttendRows& rows);
// Rotates k at the slot's frame position and stores k and v of one row in the page's type.
void write_row(const KvShape& shape, const AttendSite& site, const RowWrite& write, const float* k,
               const float* v);
}  // namespace reference

}  // namespace rhapsode::kernels
