// attend for many queries a KV head on Hopper's warpgroup products: prefill, encoding, scattered rows of a
// long context. Bound by arithmetic.
//
// A tile is up to ring_queries() (row, head) pairs of one sequence that read the same KV head: rows are
// packed with all heads of their group, so every page is brought to shared memory once for all of them. Pages
// that no row of the tile sees are passed over, so scattered rows and windows cost what they see. Where tiles
// are too few to keep the GPU busy (a question over a long context), each tile's pages are cut into splits
// that are merged by log-sum-exp; where there are some for each block, but not many, the plan says who works
// on what, cut so that all end together. For pages of 16-bit elements and head dimensions 64 and 128; queries
// and probabilities are rounded to the type of the page.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

constexpr int ring_queries(int head_dim) {
  return head_dim == 64 ? 192 : 128;
}

constexpr int ring_tile_rows(int head_dim, int group) {
  return group >= ring_queries(head_dim) ? 1 : ring_queries(head_dim) / group;
}

// How a pass is cut, chosen on the host.
struct RingSchedule {
  TileList tiles;             // of at most ring_tile_rows() rows
  int splits = 1;             // parts that each tile's pages are cut into
  float* partials = nullptr;  // ring_workspace_bytes(); unused with one split
  // Instead: who works on what (part_schedule.h). No rounds: blocks take tiles in turns, which is as good
  // where there are many.
  struct Planned {
    const DevicePart* parts = nullptr;  // [rounds][kProcessors]
    int rounds = 0;
    const DeviceMerge* merges = nullptr;
    int merge_count = 0;
  };
  Planned planned = {};
};

bool can_attend_ring(const KvShape& shape, int group);

// One, unless tiles leave more than half of the GPU idle; parts have at least a few pages each.
int ring_splits(const KvShape& shape, int tile_count, int most_references);
size_t ring_workspace_bytes(const KvShape& shape, int tile_count, int splits);
// The same for so many partial results of planned parts.
size_t ring_slots_bytes(const KvShape& shape, int slots);

void attend_ring(const DeviceAttend& attend, const RingSchedule& schedule, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
