// A tile of attend_stream as its kernels see it, and how the results of warps, blocks and splits become one.
//
// Maxima are in powers of two, sums and outputs unnormalised, until a query's last merge stores it.
#pragma once

#include <cmath>

#include "kernels/cuda/attend_stream.h"
#include "kernels/cuda/chained.cuh"
#include "kernels/cuda/page_access.cuh"
#include "kernels/cuda/turned.cuh"

namespace rhapsode::kernels::cuda::stream {

constexpr int kWarps = 4;  // a block
constexpr int kMergeThreads = 256;
constexpr int kMostSplits = 512;
constexpr float kLog2E = 1.44269504088896340736f;

struct StreamParameters {
  PageLayout layout;
  DevicePlan plan;
  StreamSchedule schedule;
  const float* shift_angles;
  const float* turned;
  void* out;
  float* lse;
  int layer;
  int heads;
  int group;
  int head_tiles;  // of a group; more than one when it is above eight
  float scale;
  int32_t window;
  float soft_cap;
  Turning turning;
};

// What this block computes: query n of the tile is row n / heads_here, head n % heads_here.
struct Tile {
  DeviceTile rows;
  int kv_head;
  int head_begin;
  int heads_here;
  int queries;

  __device__ int row(int n) const { return rows.row_begin + n / heads_here; }
  __device__ int head(int n) const { return head_begin + n % heads_here; }
};

__device__ inline Tile make_tile(const StreamParameters& p) {
  Tile tile;
  tile.rows = p.schedule.tiles.tiles[blockIdx.x];
  tile.kv_head = blockIdx.y / p.head_tiles;
  const int begin = blockIdx.y % p.head_tiles * kStreamQueries;
  tile.head_begin = tile.kv_head * p.group + begin;
  tile.heads_here = min(p.group - begin, kStreamQueries);
  tile.queries = tile.rows.row_count * tile.heads_here;
  return tile;
}

template <int kDim>
struct BlockMemory {
  float queries[kStreamQueries][kDim + 4];  // turned by their own position, scaled
  float out[kWarps][kStreamQueries][kDim + 4];
  float max[kWarps][kStreamQueries];
  float sum[kWarps][kStreamQueries];
};

__device__ inline void store_out(void* out, Element element, int64_t at, float value) {
  if (element == Element::kF32) {
    static_cast<float*>(out)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(out)[at] = __float2bfloat16(value);
  }
}

// A partial result in the workspace: [dimensions] unnormalised, then its maximum and sum.
__device__ inline float* partial_of(const StreamParameters& p, int split, int n, int dimensions) {
  const int64_t tile = (int64_t{blockIdx.x} * gridDim.y + blockIdx.y) * p.schedule.splits + split;
  return p.schedule.partials + (tile * kStreamQueries + n) * (dimensions + 2);
}

__device__ inline void store_lse(const StreamParameters& p, const Tile& tile, int n, float max, float sum) {
  if (!p.lse) return;
  p.lse[int64_t{tile.row(n)} * p.heads + tile.head(n)] = sum > 0 ? max / kLog2E + logf(sum) : -INFINITY;
}

// The warps' results become one, in the first warp's place.
template <int kDim>
__device__ void merge_warps(const Tile& tile, BlockMemory<kDim>& memory) {
  __shared__ float weights[kWarps][kStreamQueries];
  for (int n = threadIdx.x; n < tile.queries; n += kWarps * 32) {
    float max = -INFINITY;
    for (int warp = 0; warp < kWarps; ++warp) max = fmaxf(max, memory.max[warp][n]);
    const float base = max == -INFINITY ? 0.0f : max;
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      weights[warp][n] = exp2f(memory.max[warp][n] - base);
      sum += weights[warp][n] * memory.sum[warp][n];
    }
    memory.max[0][n] = max;
    memory.sum[0][n] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tile.queries * kDim; i += kWarps * 32) {
    const int n = i / kDim;
    float value = 0;
    for (int warp = 0; warp < kWarps; ++warp) value += weights[warp][n] * memory.out[warp][n][i % kDim];
    memory.out[0][n][i % kDim] = value;
  }
  __syncthreads();
}

template <typename F>
__device__ float over_block(float x, float* parts, const F& combine) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = combine(x, __shfl_xor_sync(~0u, x, lanes));
  __syncthreads();  // parts may still be read from the time before
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = parts[0];
  for (int warp = 1; warp < kMergeThreads / 32; ++warp) x = combine(x, parts[warp]);
  __syncthreads();
  return x;
}

// One block a query of a tile: its splits, merged. Groups of threads take splits in turn, one dimension a
// thread.
template <int kDim>
__global__ void merge_kernel(StreamParameters p, Element out_element) {
  __shared__ float weights[kMostSplits];
  __shared__ float parts[kMergeThreads];
  const Tile tile = make_tile(p);
  const int n = blockIdx.z;
  if (n >= tile.queries) return;
  let_next_begin();
  wait_for_previous();
  const int splits = p.schedule.splits;
  const auto max_of = [&](int split) { return partial_of(p, split, n, kDim)[kDim]; };
  float max = -INFINITY;
  for (int s = threadIdx.x; s < splits; s += kMergeThreads) max = fmaxf(max, max_of(s));
  max = over_block(max, parts, [](float a, float b) { return fmaxf(a, b); });
  const float base = max == -INFINITY ? 0.0f : max;
  float sum = 0;
  for (int s = threadIdx.x; s < splits; s += kMergeThreads) {
    weights[s] = exp2f(max_of(s) - base);
    sum += weights[s] * partial_of(p, s, n, kDim)[kDim + 1];
  }
  sum = over_block(sum, parts, [](float a, float b) { return a + b; });
  constexpr int kGroups = kMergeThreads / kDim;
  const int dim = threadIdx.x % kDim;
  float value = 0;
#pragma unroll 4
  for (int s = threadIdx.x / kDim; s < splits; s += kGroups)
    value += weights[s] * partial_of(p, s, n, kDim)[dim];
  parts[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x >= kDim) return;
  for (int group = 1; group < kGroups; ++group) value += parts[group * kDim + dim];
  store_out(p.out, out_element, (int64_t{tile.row(n)} * p.heads + tile.head(n)) * kDim + dim,
            sum > 0 ? value / sum : 0.0f);
  if (dim == 0) store_lse(p, tile, n, max, sum);
}

}  // namespace rhapsode::kernels::cuda::stream
