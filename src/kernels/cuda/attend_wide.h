// attend for many queries a KV head: prefill, encoding, scattered rows of a long context. Bound by
// arithmetic.
//
// A tile is up to kWideQueries (row, head) pairs of one sequence that read the same KV head: rows are packed
// with all heads of their group, so every page is brought to shared memory once for all of them. Pages arrive
// by asynchronous copies, two stages deep; pages that no row of the tile sees are passed over, so scattered
// rows and windows cost what they see. For pages of 16-bit elements and head dimensions 64 and 128; queries
// and probabilities are rounded to the type of the page.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

constexpr int kWideQueries = 128;

constexpr int wide_tile_rows(int group) {
  return group >= kWideQueries ? 1 : kWideQueries / group;
}

bool can_attend_wide(const KvShape& shape, int group);

void attend_wide(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
