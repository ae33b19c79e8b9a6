// Partial results of attend_ring's tiles, and how they become one.
//
// A partial result: [dimensions] unnormalised, then its maximum, in powers of two, and its sum.
#pragma once

#include "kernels/cuda/ring_state.cuh"

namespace rhapsode::kernels::cuda {

constexpr int kMergedAtOnce = 8;  // queries a block, one a warp

template <class C>
__device__ float* ring_partial(const WideParameters& p, int slot, int m) {
  return p.schedule.partials + (int64_t{slot} * C::kQueries + m) * (C::kDim + 2);
}

template <class C>
__device__ void store_partial(const WideParameters& p, int slot, int first, const RingState<C>& state) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = over_query_sum(state.sum[h]);
    float* to = ring_partial<C>(p, slot, first + lane / 4 + 8 * h);
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n + lane % 4 * 2) = {state.out[n][2 * h], state.out[n][2 * h + 1]};
    }
    if (lane % 4 == 0) *reinterpret_cast<float2*>(to + C::kDim) = {state.max[h], sum};
  }
}

// One warp a query of a tile and KV head.
template <class C>
__global__ void ring_merge_kernel(const __grid_constant__ WideParameters p, Element out_element) {
  const auto number = static_cast<int>(blockIdx.x);
  const bool planned = p.schedule.planned.rounds > 0;
  const int splits = p.schedule.splits;
  const DeviceMerge merge =
      planned ? p.schedule.planned.merges[number] : DeviceMerge{number, number * splits, splits, 0};
  const RingPart part = ring_part(p, {merge.item, 0, 0, -1});
  const int m = static_cast<int>(blockIdx.y * kMergedAtOnce + threadIdx.x / 32);
  const int lane = threadIdx.x % 32;
  if (m >= part.tile.row_count * p.group) return;
  const auto partial = [&](int split) { return ring_partial<C>(p, merge.first_slot + split, m); };
  float max = -INFINITY;
  for (int s = lane; s < merge.count; s += 32) max = fmaxf(max, partial(s)[C::kDim]);
  for (int lanes = 16; lanes > 0; lanes /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, lanes));
  const float base = max == -INFINITY ? 0.0f : max;
  float sum = 0;
  float2 out[C::kDim / 64] = {};
#pragma unroll 4
  for (int s = 0; s < merge.count; ++s) {
    const float* from = partial(s);
    const float2 end = *reinterpret_cast<const float2*>(from + C::kDim);
    const float weight = exp2f(end.x - base);
    sum += weight * end.y;
#pragma unroll
    for (int i = 0; i < C::kDim / 64; ++i) {
      const float2 value = *reinterpret_cast<const float2*>(from + 64 * i + 2 * lane);
      out[i].x += weight * value.x;
      out[i].y += weight * value.y;
    }
  }
  const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
  const int64_t at =
      int64_t{part.tile.row_begin + m / p.group} * p.heads + part.kv_head * p.group + m % p.group;
#pragma unroll
  for (int i = 0; i < C::kDim / 64; ++i) {
    const int64_t to = at * C::kDim + 64 * i + 2 * lane;
    store_two(p.out, out_element, to, out[i].x * inverse, out[i].y * inverse);
  }
  if (p.lse && lane == 0) p.lse[at] = sum > 0 ? max / kLog2E + logf(sum) : -INFINITY;
}

}  // namespace rhapsode::kernels::cuda
