// Where attention went: probabilities of each slot, summed over rows and heads. A second pass over the keys,
// with the log-sum-exp that attending left behind.
//
// Pages of a list that lie side by side in one frame are a *run*: a block takes one, for a KV head and a part
// of the queries, and turns these into the frame once for all of its pages. Every block adds to sums of its
// own, which finish_mass() adds up in a fixed order: the same pass gives the same bytes. Pages of 16-bit and
// int8 elements and head dimensions 64 and 128 are multiplied by matrix products, with queries rounded to the
// 16-bit type of the page (int8: f16); others exactly. Cost: docs/results.md.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

// The sequences' shared lists, and what is added up for them.
struct MassTarget {
  const DeviceSequence* sequences = nullptr;
  const DeviceList* shared = nullptr;   // [sequences]
  const DevicePageRun* runs = nullptr;  // [run_count], of the shared lists
  int run_count = 0;
  int references = 0;      // of all lists
  int query_parts = 1;     // that a sequence's queries are cut into: mass_query_parts()
  double* sums = nullptr;  // [mass_parts()][references][64], added to
};

// As many as run at once, as each reads the keys for itself; heads: of the layer with most.
int mass_query_parts(const KvShape& shape, int heads, const PlanSizes& sizes);
inline int mass_parts(const KvShape& shape, int query_parts) {
  return shape.kv_heads * query_parts;
}

// attend.lse is that of the layer. A sequence that reads a list of its own in this layer adds nothing.
void attend_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream);

// After the last layer: the first part becomes the sum of all, [references][64].
void finish_mass(const KvShape& shape, const MassTarget& target, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
