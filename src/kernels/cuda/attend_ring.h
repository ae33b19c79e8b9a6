// attend for many queries a KV head on Hopper's warpgroup products: prefill, encoding, scattered rows of a
// long context. Bound by arithmetic.
//
// A tile is up to ring_queries() (row, head) pairs of one sequence that read the same KV head: rows are
// packed with all heads of their group, so every page is brought to shared memory once for all of them. Pages
// that no row of the tile sees are passed over, so scattered rows and windows cost what they see. For pages
// of 16-bit elements and head dimensions 64 and 128; queries and probabilities are rounded to the type of the
// page.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

constexpr int ring_queries(int head_dim) {
  return head_dim == 64 ? 192 : 128;
}

constexpr int ring_tile_rows(int head_dim, int group) {
  return group >= ring_queries(head_dim) ? 1 : ring_queries(head_dim) / group;
}

bool can_attend_ring(const KvShape& shape, int group);

void attend_ring(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
