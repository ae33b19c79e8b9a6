// The vector kernels of block-sparse reading, one set per instruction set: making bounds, scoring with them.
//
// Same meaning as reference/page_bounds.cpp, in float32; radii are enlarged by what float32 may have rounded
// away. Every bound depends on nothing but its own group and query, so bytes are equal wherever it is
// computed. Memory: all of it comes from the caller. Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/attend_kernels.h"
#include "kernels/page_bounds.h"

namespace rhapsode::kernels::cpu {

// The bounds of one head of one page.
struct BoundTask {
  const KvShape* shape = nullptr;
  const BoundsShape* bounds = nullptr;
  const Page* page = nullptr;
  int slots = 0;  // filled
  int layer = 0;
  int kv_head = 0;
};

// All query heads of one KV head of one row against a run of pages.
struct ScoreTask {
  const KvShape* shape = nullptr;
  const BoundsShape* bounds = nullptr;
  const AttendSite* site = nullptr;
  int kv_head = 0;
  int heads = 0;             // of the group
  const float* q = nullptr;  // [heads][head_dim], not rotated
  int32_t position = 0;
  std::span<const ResolvedReference> references;
  float* rotated = nullptr;  // [head_dim] scratch
  // [heads][row_elements], 64-byte aligned: extended queries, as bounds lie in memory. *extended says for
  // which shift they have been made; kNotExtended: for none. Kept for the next run of the same heads.
  float* query = nullptr;
  int64_t* extended = nullptr;
  // [head][reference][group], a head every `stride`; infinite keys may make NaN.
  float* scores = nullptr;
  int64_t stride = 0;
};

inline constexpr int64_t kNotExtended = INT64_MAX;

struct BoundKernels {
  const char* target = "";
  void (*bound)(const BoundTask& task) = nullptr;
  void (*score)(const ScoreTask& task) = nullptr;
  // value[i] = max over heads of scores[head][i] - (the head's largest finite score); +inf and NaN give
  // +inf. `count` is a multiple of 16, scores without a meaning are -inf.
  void (*value)(const float* scores, int64_t stride, int heads, int count, float* value) = nullptr;
  // Bit i of above and equal: values[i] > and == threshold. A word for every 64 of `count`, a multiple of 16.
  void (*mark)(const float* values, int count, float threshold, uint64_t* above, uint64_t* equal) = nullptr;
};

const BoundKernels& bound_kernels();
// As force_attend_target().
bool force_bound_target(const std::string& name);

}  // namespace rhapsode::kernels::cpu
