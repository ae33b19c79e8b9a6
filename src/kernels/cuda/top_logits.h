// The largest logits of rows where they lie (kernels/top_logits.h): two kernels, no row sorted.
//
// The first reads each row once. A row's pieces are dealt out to 1,024 groups, of which it keeps the largest
// logit each, and adds up exponentials in double precision. The kTopLogits-th largest of those is a bound
// that at least as many logits reach, and of usual rows few more: the second kernel finds it bit by bit,
// reads the groups that reach it again, and sorts what it finds there. Where too many do (ties, or large
// logits in few groups only) it finds the exact bound in the whole row, bit by bit, and takes ties by token:
// slower, the same result. Exactness: order and tokens are exact; exp_sum is within 2^-40 of itself, from
// exponentials (1 ulp each) and fewer than 300 rounded additions a path up to eight million logits. The same
// bytes every time. Enqueues on `stream` and returns at once; a failed launch is found by cudaGetLastError().
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/top_logits.h"

namespace rhapsode::kernels::cuda {

// One row's result, as it is copied to the host.
struct TopRow {
  double exp_sum;  // 0 for broken rows
  int32_t count;
  int32_t possible;
  int32_t broken;
  int32_t padding;
  int32_t tokens[kTopLogits];
  float logits[kTopLogits];
};

struct TopLogitsCall {
  int rows = 0;
  const float* logits = nullptr;
  int64_t stride = 0;      // floats from row to row
  int32_t vocabulary = 0;  // of a row, the first so many
  void* workspace = nullptr;
  TopRow* out = nullptr;  // [rows]
};

size_t top_logits_workspace_bytes(int rows);
void find_top_logits(const TopLogitsCall& call, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
