// The queries of a tile on their way into the ring's block, and its results on their way out; by the warp
// that has them.
#pragma once

#include "kernels/cuda/ring_state.cuh"

namespace rhapsode::kernels::cuda {

__device__ __forceinline__ float4 four_of(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ void store_four(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}

// Four dimensions of a query and the four that are paired with them, turned and scaled.
template <int kHalf>
__device__ __forceinline__ void turn_four(const float* x, const float* cosines, float factor, float* to) {
  const float4 a = four_of(x);
  const float4 b = four_of(x + kHalf);
  const float4 c = four_of(cosines);
  const float4 s = four_of(cosines + kHalf);
  store_four(to, {factor * (a.x * c.x - b.x * s.x), factor * (a.y * c.y - b.y * s.y),
                  factor * (a.z * c.z - b.z * s.z), factor * (a.w * c.w - b.w * s.w)});
  store_four(to + kHalf, {factor * (a.x * s.x + b.x * c.x), factor * (a.y * s.y + b.y * c.y),
                          factor * (a.z * s.z + b.z * c.z), factor * (a.w * s.w + b.w * c.w)});
}

// A warp's 16 queries, turned by their own positions and scaled, and those positions; zeros beyond the tile.
template <class C>
__device__ void load_queries(const WideParameters& p, const DeviceTile& tile, int kv_head, int first,
                             RingMemory<C>& memory) {
  // With a cap scores are needed in natural units; else powers of two save a multiplication a score.
  const float factor = !C::kPlain && p.soft_cap > 0 ? p.scale : p.scale * kLog2E;
  const int count = tile.row_count * p.group;
  constexpr int kHalf = C::kDim / 2;
#pragma unroll  // so that everything is asked for before the first is waited for
  for (int i = 0; i < 16 * kHalf / 4 / 32; ++i) {
    const int piece = i * 32 + static_cast<int>(threadIdx.x) % 32;
    const int m = first + piece / (kHalf / 4);
    const int dim = piece % (kHalf / 4) * 4;
    const int of = min(m, count - 1);  // rows beyond the tile: its last, times zero
    const int64_t row = tile.row_begin + of / p.group;
    const float* x = p.q + row * p.q_stride + (kv_head * p.group + of % p.group) * C::kDim;
    const float* cosines = p.row_angles + row * 2 * p.turning.pairs;
    const float scale = m < count ? factor : 0.0f;
    if constexpr (C::kPlain) {
      turn_four<kHalf>(x + dim, cosines + dim, scale, &memory.queries[m][dim]);
    } else {
      const auto turned = [&](int n) { return scale * turned_dimension(x, n, cosines, p.turning); };
      for (const int n : {dim, dim + kHalf}) {
        store_four(&memory.queries[m][n], {turned(n), turned(n + 1), turned(n + 2), turned(n + 3)});
      }
    }
  }
  if (const int m = first + threadIdx.x % 32; threadIdx.x % 32 < 16) {
    const int row = tile.row_begin + min(m / p.group, tile.row_count - 1);
    *reinterpret_cast<int32_t*>(&memory.queries[m][C::kDim]) = p.plan.positions[row];
  }
  __syncwarp();
}

template <class C>
__device__ void store_tile(const WideParameters& p, const DeviceTile& tile, int kv_head, int first,
                           Element out_element, const RingState<C>& state) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = over_query_sum(state.sum[h]);
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    const int m = first + lane / 4 + 8 * h;
    if (m >= tile.row_count * p.group) continue;
    const int64_t at = int64_t{tile.row_begin + m / p.group} * p.heads + kv_head * p.group + m % p.group;
#pragma unroll
    for (int n = 0; n < C::kDim / 8; ++n) {
      const int64_t i = at * C::kDim + 8 * n + lane % 4 * 2;
      store_two(p.out, out_element, i, state.out[n][2 * h] * inverse, state.out[n][2 * h + 1] * inverse);
    }
    if (p.lse && lane % 4 == 0) p.lse[at] = sum > 0 ? state.max[h] / kLog2E + logf(sum) : -INFINITY;
  }
}

}  // namespace rhapsode::kernels::cuda
