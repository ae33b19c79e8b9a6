// What a multiplying warp of attend_ring has: its queries in the frame at hand, and the softmax so far.
#pragma once

#include <cmath>

#include "kernels/cuda/ring_memory.cuh"

namespace rhapsode::kernels::cuda {

// Volatile, so that it stays before the products that are waited for behind it.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Of the four lanes that share a query.
__device__ __forceinline__ float over_query_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Two neighbouring elements of a result; `at` is even.
__device__ __forceinline__ void store_two(void* out, Element element, int64_t at, float low, float high) {
  if (element == Element::kF32) {
    *reinterpret_cast<float2*>(static_cast<float*>(out) + at) = {low, high};
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(out) + at) = NarrowBrain::pack(low, high);
  }
}

// One lane's share of its warp's 16 queries: rows g and g + 8.
template <class C>
struct RingState {
  static constexpr KvType kType = C::kType;
  static constexpr int kDim = C::kDim;
  using Scores = float[C::kSlots / 8][4];
  uint32_t queries[kDim / 16][4];             // in the frame of a page
  uint32_t probabilities[C::kSlots / 16][4];  // of the last step
  float out[kDim / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's slots only
  int framed_by = -1;

  __device__ __forceinline__ void turn_to(const WideParameters& p, const float* mine, int shift_row) {
    if (framed_by == shift_row) return;
    framed_by = shift_row;
    const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.turning.pairs;
    if constexpr (C::kPlain) {
      turn_halves(mine, cosines);
    } else {
      turn_any(p, mine, cosines);
    }
  }

  __device__ __forceinline__ void turn_any(const WideParameters& p, const float* mine, const float* cosines) {
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = mine + i % 2 * 8 * RingMemory<C>::kQueryRow;
        const int dim = 16 * step + threadIdx.x % 4 * 2 + i / 2 * 8;
        queries[step][i] = Narrow<kType>::pack(turned_dimension(x, dim, cosines, p.turning),
                                               turned_dimension(x, dim + 1, cosines, p.turning));
      }
    }
  }

  // Both halves of a pair are this lane's own.
  __device__ __forceinline__ void turn_halves(const float* mine, const float* cosines) {
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int dim = 16 * step + threadIdx.x % 4 * 2 + half * 8;
        const float2 cosine = *reinterpret_cast<const float2*>(cosines + dim);
        const float2 sine = *reinterpret_cast<const float2*>(cosines + kDim / 2 + dim);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const float* x = mine + row * 8 * RingMemory<C>::kQueryRow + dim;
          const float2 a = *reinterpret_cast<const float2*>(x);
          const float2 b = *reinterpret_cast<const float2*>(x + kDim / 2);
          queries[step][2 * half + row] =
              Narrow<kType>::pack(a.x * cosine.x - b.x * sine.x, a.y * cosine.y - b.y * sine.y);
          queries[step + kDim / 32][2 * half + row] =
              Narrow<kType>::pack(a.x * sine.x + b.x * cosine.x, a.y * sine.y + b.y * cosine.y);
        }
      }
    }
  }

  // Begins scores[n]: queries g and g + 8 against slots 8n + 2t and 8n + 2t + 1 of a step's pages. Here and
  // below registers are opened to products before, by open_products().
  __device__ __forceinline__ void begin_scores(uint32_t keys, Scores& scores) {
    const uint64_t matrix = RingMemory<C>::describe_keys(keys);
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      multiply<kType>(scores, queries[step], moved(matrix, step * RingMemory<C>::kStepBytes), step > 0);
    }
    close_products();
  }

  // Begins out += probabilities x values.
  __device__ __forceinline__ void begin_values(uint32_t values) {
#pragma unroll
    for (int step = 0; step < C::kSlots / 16; ++step) {
      const int page = step / (kPageTokens / 16);
      const uint64_t matrix = RingMemory<C>::describe_values(values + page * RingMemory<C>::kMatrixBytes);
      multiply<kType>(out, probabilities[step],
                      moved(matrix, step % (kPageTokens / 16) * RingMemory<C>::kStepBytes), true);
    }
    close_products();
  }

  // Scores become probabilities. True: what was summed so far is to be multiplied by `keep`.
  __device__ __forceinline__ bool soften(Scores& scores, float (&keep)[2]) {
    float most[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float parts[2] = {scores[0][2 * h], scores[0][2 * h + 1]};
#pragma unroll
      for (int n = 0; n < C::kSlots / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) parts[i] = fmaxf(parts[i], scores[n][2 * h + i]);
      }
      most[h] = fmaxf(parts[0], parts[1]);
    }
    const bool grows = most[0] > max[0] + kSlack || most[1] > max[1] + kSlack;
    const bool moves = __any_sync(~0u, grows);
    if (moves) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 1));
        most[h] = fmaxf(most[h], __shfl_xor_sync(~0u, most[h], 2));
        most[h] = fmaxf(most[h], max[h]);
        keep[h] = most[h] == -INFINITY ? 1.0f : power_of_two(max[h] - most[h]);
        max[h] = most[h];
        sum[h] *= keep[h];
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = max[h] == -INFINITY ? 0.0f : max[h];
      float sums[2] = {};
#pragma unroll
      for (int n = 0; n < C::kSlots / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& score = scores[n][2 * h + i];
          score = power_of_two(score - base);
          sums[i] += score;
        }
      }
      sum[h] += sums[0] + sums[1];
    }
    return moves;
  }

  __device__ __forceinline__ void pack(const Scores& scores) {
    using N = Narrow<kType>;
#pragma unroll
    for (int step = 0; step < C::kSlots / 16; ++step) {
      const auto& low = scores[2 * step];
      const auto& high = scores[2 * step + 1];
      probabilities[step][0] = N::pack(low[0], low[1]);
      probabilities[step][1] = N::pack(low[2], low[3]);
      probabilities[step][2] = N::pack(high[0], high[1]);
      probabilities[step][3] = N::pack(high[2], high[3]);
    }
  }

  __device__ __forceinline__ void rescale(const float (&keep)[2]) {
#pragma unroll
    for (auto& tile : out) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= keep[i / 2];
    }
  }
};

// Bit 2n + i: whether a query at `position` sees slot 8n + 2t + i.
__device__ __forceinline__ uint32_t seen_slots(const WideParameters& p, const RingPage& page,
                                               int32_t position) {
  const int t = threadIdx.x % 4;
  uint64_t visible = page.mask;
  uint32_t seen = 0;
  if (page.gathered < 0) visible &= visible_consecutive(page, position, p.window);
#pragma unroll
  for (int n = 0; n < 8; ++n) seen |= static_cast<uint32_t>(visible >> (8 * n + 2 * t) & 3) << (2 * n);
  if (page.gathered < 0) return seen;
  const int32_t* keys = p.plan.gathered + int64_t{page.gathered} * kPageTokens;
#pragma unroll 1  // rare, and in the way of what is not
  for (int i = 0; i < 16; ++i) {
    if (!sees(position, keys[i / 2 * 8 + 2 * t + i % 2], p.window, page.sink)) seen &= ~(1u << i);
  }
  return seen;
}

// Scores in natural units become capped ones in powers of two.
template <int kEights>
__device__ __forceinline__ void cap_scores(float cap, float (&scores)[kEights][4]) {
  const float inside = 2.0f * kLog2E / cap;
  const float outside = cap * kLog2E;
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // the hyperbolic tangent, by a power
      scores[n][i] = outside - __fdividef(2.0f * outside, 1.0f + power_of_two(inside * scores[n][i]));
    }
  }
}

// What the first lane finds in shared memory.
__device__ __forceinline__ RingPage first_lanes(const RingPage& page) {
  RingPage found{};
  if (threadIdx.x % 32 == 0) found = page;
  found.mask = __shfl_sync(~0u, static_cast<unsigned long long>(found.mask), 0);
  for (int32_t* part : {&found.first, &found.gathered, &found.sink}) *part = __shfl_sync(~0u, *part, 0);
  return found;
}

// What the warp's queries, the lane's first of which is `mine`, may not see of a step's page.
template <class C, int kPage>
__device__ __forceinline__ void hide_unseen(const WideParameters& p, const RingPage& shared,
                                            const float* mine, typename RingState<C>::Scores& scores) {
  const RingPage page = first_lanes(shared);
  uint32_t seen = 0;  // of the second query, and above that of the first
#pragma unroll 1
  for (int h = 0; h < 2; ++h) {
    const auto position =
        *reinterpret_cast<const int32_t*>(mine + h * 8 * RingMemory<C>::kQueryRow + C::kDim);
    seen = seen << 16 | seen_slots(p, page, position);
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!(seen >> (2 * n + i % 2 + (1 - i / 2) * 16) & 1)) scores[8 * kPage + n][i] = -INFINITY;
    }
  }
}

}  // namespace rhapsode::kernels::cuda
