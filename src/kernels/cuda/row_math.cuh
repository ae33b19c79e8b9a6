// One row and head against one page, by one warp: what attend_rows and attend_mass share. Exact arithmetic:
// float32 whatever the page's type.
#pragma once

#include <cmath>

#include "kernels/cuda/attend.h"
#include "kernels/cuda/page_access.cuh"

namespace rhapsode::kernels::cuda {

constexpr int kMostHeadDim = 256;

struct RowParameters {
  PageLayout layout;
  DevicePlan plan;
  const float* shift_angles;
  const float* turned;
  int layer;
  int heads;
  float scale;
  int32_t window;
  float soft_cap;
  int pairs;
  bool adjacent;
};

inline RowParameters row_parameters(const DeviceAttend& attend) {
  return {page_layout(attend.shape),
          attend.plan,
          attend.shift_angles,
          attend.turned,
          attend.layer,
          attend.heads,
          attend.scale,
          attend.window,
          attend.soft_cap,
          attend.pairs,
          attend.adjacent};
}

// to = from, scaled and turned by a table row.
__device__ inline void turn_query(const float* from, float* to, int shift_row, const RowParameters& p) {
  const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.pairs;
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < p.layout.head_dim; i += 32) {
    if (i < p.pairs) {
      const int a = p.adjacent ? 2 * i : i;
      const int b = p.adjacent ? 2 * i + 1 : i + p.pairs;
      const Pair turned = turn({from[a] * p.scale, from[b] * p.scale}, cosines[i], cosines[p.pairs + i]);
      to[a] = turned.a;
      to[b] = turned.b;
    } else if (i >= 2 * p.pairs) {
      to[i] = from[i] * p.scale;
    }
  }
  __syncwarp();
}

__device__ inline uint64_t visible_to(const RowParameters& p, const DeviceReference& reference,
                                      int32_t position) {
  if (reference.gathered < 0) return reference.mask & visible_consecutive(reference, position, p.window);
  const int lane = threadIdx.x % 32;
  const int32_t* positions = p.plan.gathered + int64_t{reference.gathered} * kPageTokens;
  const unsigned low = __ballot_sync(~0u, sees(position, positions[lane], p.window, reference.sink));
  const unsigned high = __ballot_sync(~0u, sees(position, positions[lane + 32], p.window, reference.sink));
  return reference.mask & (uint64_t{high} << 32 | low);
}

__device__ inline float warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}
__device__ inline float warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// The score of one slot; -inf where it is not visible.
template <KvType type>
__device__ float score(const RowParameters& p, const DeviceHead& head, const float* q, int slot,
                       bool visible) {
  using Element = PageElement<type>;
  if (!visible) return -INFINITY;
  const int d = p.layout.head_dim;
  const auto* k = reinterpret_cast<const typename Element::Type*>(head.k) + key_index(d, slot, 0);
  float sum = 0;
  for (int i = 0; i < d; ++i) sum += q[i] * Element::load(k[i * kKeyGroup]);
  if constexpr (type == KvType::kI8) sum *= head.k_scale[slot];
  return p.soft_cap > 0 ? p.soft_cap * tanhf(sum / p.soft_cap) : sum;
}

}  // namespace rhapsode::kernels::cuda
