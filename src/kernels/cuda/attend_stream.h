// attend for few queries a KV head: decoding, questions over a long memory. Bound by reading pages once.
//
// A tile is up to eight (row, head) pairs of one sequence that read the same KV head; tensor cores multiply
// it with the keys as the tall operand, so that GQA groups below eight waste little. Every warp streams its
// own share of the pages from memory straight into matrix fragments, 16 bytes a load, without shared memory;
// the warps of a block and then the blocks of a split are merged by log-sum-exp. For pages of 16-bit and int8
// elements and head dimensions 64 and 128; queries and probabilities are rounded to the 16-bit type of the
// page (int8: f16).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

constexpr int kStreamQueries = 8;

// Rows of one sequence that share a tile.
constexpr int stream_tile_rows(int group) {
  return group >= kStreamQueries ? 1 : kStreamQueries / group;
}

// How a pass is cut, chosen on the host.
struct StreamSchedule {
  TileList tiles;             // of at most stream_tile_rows() rows
  int splits = 1;             // parts that each tile's pages are cut into
  float* partials = nullptr;  // stream_workspace_bytes(); unused with one split
};

bool can_stream(const KvShape& shape);

// As many splits as keep the whole GPU busy, of at least a few pages each.
int stream_splits(const KvShape& shape, int heads, int tile_count, int most_references);
size_t stream_workspace_bytes(const KvShape& shape, int heads, int tile_count, int splits);

void attend_stream(const DeviceAttend& attend, const StreamSchedule& schedule, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
