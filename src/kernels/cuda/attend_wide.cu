#include "kernels/cuda/attend_wide.h"

#include <cmath>

#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/page_access.cuh"
#include "kernels/cuda/turned.cuh"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kWarps = kWideQueries / 16;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 2;
constexpr float kLog2E = 1.44269504088896340736f;

struct WideParameters {
  PageLayout layout;
  DevicePlan plan;
  TileList tiles;
  const float* shift_angles;
  const float* turned;
  void* out;
  float* lse;
  int layer;
  int heads;
  int group;
  float scale;
  int32_t window;
  float soft_cap;
  Turning turning;
};

// A page of one KV head in shared memory. Keys: the eight slots of half a key group lie side by side,
// dimension after dimension, so that eight rows of a fragment are 128 bytes; a gap keeps the two halves of a
// group in different banks. Values: slot after slot, 16-byte pieces swapped by the slot's low bits.
template <int kDim>
struct StageLayout {
  static constexpr int kHalfGroupBytes = kDim * 16 + 64;
  static constexpr int kKeyBytes = kPageTokens / 8 * kHalfGroupBytes;
  static constexpr int kValueRowBytes = kDim * 2;
  static constexpr int kBytes = kKeyBytes + kPageTokens * kValueRowBytes;

  static __device__ uint32_t key_at(int half_group, int dim) {
    return static_cast<uint32_t>(half_group * kHalfGroupBytes + dim * 16);
  }
  static __device__ uint32_t value_at(int slot, int piece) {
    return static_cast<uint32_t>(kKeyBytes + slot * kValueRowBytes + ((piece ^ (slot & 7)) * 16));
  }
};

__device__ void copy_16_bytes(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ void close_copies() {
  asm volatile("cp.async.commit_group;");
}
template <int kOpen>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen));
}

// Four 8 x 8 matrices, transposed; every lane gives the address of one row of one.
__device__ void load_matrices(uint32_t address, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address));
}

// The tile's rows: how far they reach.
struct Reach {
  int32_t lowest;
  int32_t highest;
};

template <int kDim>
__device__ void fetch_page(const DeviceHead& page, uint32_t stage) {
  using Layout = StageLayout<kDim>;
#pragma unroll
  for (int i = 0; i < kDim * 8 / kThreads; ++i) {  // 16-byte pieces of K: [group][dim][half]
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int half = piece % 2;
    const int dim = piece / 2 % kDim;
    const int group = piece / (2 * kDim);
    copy_16_bytes(stage + Layout::key_at(2 * group + half, dim), page.k + int64_t{piece} * 16);
  }
#pragma unroll
  for (int i = 0; i < kDim * 8 / kThreads; ++i) {
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int slot = piece / (kDim / 8);
    copy_16_bytes(stage + Layout::value_at(slot, piece % (kDim / 8)), page.v + int64_t{piece} * 16);
  }
}

__device__ bool seen_by_any(const WideParameters& p, const DeviceReference& reference, const Reach& reach) {
  if (reference.gathered >= 0) return true;
  if ((reference.mask & visible_consecutive(reference, reach.highest, 0)) == 0) return false;
  const int64_t last = int64_t{reference.first} + kPageTokens - 1;
  return p.window == 0 || reference.sink || reach.lowest - last < p.window;
}

// The next reference at or behind r that some row sees; list.count when there is none. The same in every
// thread.
__device__ int next_seen(const WideParameters& p, const DeviceList& list, const Reach& reach, int r) {
  while (r < list.count && !seen_by_any(p, p.plan.references[list.begin + r], reach)) ++r;
  return r;
}

__device__ bool seen_by_all(const WideParameters& p, const DeviceReference& reference, const Reach& reach) {
  if (reference.gathered >= 0 || reference.mask != ~0ull) return false;
  if (int64_t{reference.first} + kPageTokens - 1 > reach.lowest) return false;
  return p.window == 0 || reference.sink || int64_t{reach.highest} - reference.first < p.window;
}

// One lane's two queries: rows g and g + 8 of its warp's 16.
struct LaneQueries {
  const float* x[2];  // turned by their own positions; null beyond the tile
  int32_t position[2];
};

template <KvType type, int kDim>
struct WideState {
  uint32_t queries[kDim / 16][4];
  float out[kDim / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's slots only

  __device__ void turn_to(const WideParameters& p, const LaneQueries& lane_queries, int shift_row) {
    const float factor = p.soft_cap > 0 ? p.scale : p.scale * kLog2E;
    const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.turning.pairs;
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = lane_queries.x[i % 2];
        const int dim = 16 * step + 2 * t + i / 2 * 8;
        const float low = x ? factor * turned_dimension(x, dim, cosines, p.turning) : 0.0f;
        const float high = x ? factor * turned_dimension(x, dim + 1, cosines, p.turning) : 0.0f;
        queries[step][i] = Narrow<type>::pack(low, high);
      }
    }
  }
};

// scores[n]: queries g and g + 8 against slots 8n + 2t and 8n + 2t + 1.
template <KvType type, int kDim>
__device__ void score_stage(const WideState<type, kDim>& state, uint32_t stage, float (&scores)[8][4]) {
  const int lane = threadIdx.x % 32;
  const int row = lane % 8 + lane / 8 % 2 * 8;  // of 16 dimensions
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t b[4];
      load_matrices(stage + StageLayout<kDim>::key_at(n + lane / 16, 16 * step + row), b);
      Narrow<type>::multiply(scores[n], state.queries[step], b[0], b[1]);
      Narrow<type>::multiply(scores[n + 1], state.queries[step], b[2], b[3]);
    }
  }
}

// Bit 2n + i: whether query h (0: g, 1: g + 8) sees slot 8n + 2t + i.
__device__ uint32_t seen_slots(const WideParameters& p, const DeviceReference& reference, int32_t position) {
  const int t = threadIdx.x % 4;
  uint64_t visible = reference.mask;
  uint32_t seen = 0;
  if (reference.gathered < 0) visible &= visible_consecutive(reference, position, p.window);
#pragma unroll
  for (int n = 0; n < 8; ++n) seen |= static_cast<uint32_t>(visible >> (8 * n + 2 * t) & 3) << (2 * n);
  if (reference.gathered < 0) return seen;
  const int32_t* keys = p.plan.gathered + int64_t{reference.gathered} * kPageTokens;
  for (int n = 0; n < 8; ++n) {
    for (int i = 0; i < 2; ++i) {
      if (!sees(position, keys[8 * n + 2 * t + i], p.window, reference.sink)) seen &= ~(1u << (2 * n + i));
    }
  }
  return seen;
}

template <KvType type, int kDim>
__device__ void soften(const WideParameters& p, const DeviceReference& reference, bool all,
                       const LaneQueries& lane_queries, float (&scores)[8][4], WideState<type, kDim>& state) {
  if (p.soft_cap > 0) {
#pragma unroll
    for (auto& tile : scores) {
#pragma unroll
      for (float& score : tile) score = p.soft_cap * tanhf(score / p.soft_cap) * kLog2E;
    }
  }
  if (!all) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t seen = seen_slots(p, reference, lane_queries.position[h]);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (!(seen >> (2 * n + i) & 1)) scores[n][2 * h + i] = -INFINITY;
        }
      }
    }
  }
  float keep[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < 8; ++n) most = fmaxf(most, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float max = fmaxf(state.max[h], most);
    const float base = max == -INFINITY ? 0.0f : max;
    keep[h] = exp2f(state.max[h] - base);
    state.max[h] = max;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& score = scores[n][2 * h + i];
        score = exp2f(score - base);
        sum += score;
      }
    }
    state.sum[h] = state.sum[h] * keep[h] + sum;
  }
#pragma unroll
  for (auto& tile : state.out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] *= keep[i / 2];
  }
}

template <KvType type, int kDim>
__device__ void add_values(uint32_t stage, const float (&probabilities)[8][4], WideState<type, kDim>& state) {
  using N = Narrow<type>;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kPageTokens / 16; ++step) {
    const auto& low = probabilities[2 * step];
    const auto& high = probabilities[2 * step + 1];
    const uint32_t a[4] = {N::pack(low[0], low[1]), N::pack(low[2], low[3]), N::pack(high[0], high[1]),
                           N::pack(high[2], high[3])};
    const int slot = 16 * step + lane % 16;
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      uint32_t b[4];
      load_matrices(stage + StageLayout<kDim>::value_at(slot, n + lane / 16), b);
      N::multiply(state.out[n], a, b[0], b[1]);
      N::multiply(state.out[n + 1], a, b[2], b[3]);
    }
  }
}

// Values of slots without bytes of their own may be NaN, which no zero probability removes.
template <int kDim>
__device__ void clear_unfilled(uint64_t mask, std::byte* stage) {
  for (int i = threadIdx.x; i < kPageTokens * kDim / 8; i += kThreads) {
    const int slot = i / (kDim / 8);
    if (mask >> slot & 1) continue;
    *reinterpret_cast<uint4*>(stage + StageLayout<kDim>::value_at(slot, i % (kDim / 8))) = uint4{};
  }
}

__device__ Reach reach_of(const WideParameters& p, const DeviceTile& tile) {
  Reach reach{INT32_MAX, INT32_MIN};
  for (int row = 0; row < tile.row_count; ++row) {
    const int32_t position = p.plan.positions[tile.row_begin + row];
    reach.lowest = min(reach.lowest, position);
    reach.highest = max(reach.highest, position);
  }
  return reach;
}

template <KvType type, int kDim>
__device__ void store_tile(const WideParameters& p, const DeviceTile& tile, int kv_head, Element out_element,
                           WideState<type, kDim>& state) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = state.sum[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
    const int m = threadIdx.x / 32 * 16 + lane / 4 + 8 * h;
    if (m >= tile.row_count * p.group) continue;
    const int64_t at = int64_t{tile.row_begin + m / p.group} * p.heads + kv_head * p.group + m % p.group;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int64_t i = at * kDim + 8 * n + lane % 4 * 2;
      const float low = state.out[n][2 * h] * inverse;
      const float high = state.out[n][2 * h + 1] * inverse;
      if (out_element == Element::kF32) {
        *reinterpret_cast<float2*>(static_cast<float*>(p.out) + i) = {low, high};
      } else {
        *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + i) = NarrowBrain::pack(low, high);
      }
    }
    if (p.lse && lane % 4 == 0) p.lse[at] = sum > 0 ? state.max[h] / kLog2E + logf(sum) : -INFINITY;
  }
}

template <KvType type, int kDim>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(WideParameters p, Element out_element) {
  extern __shared__ __align__(128) std::byte stages[];
  using Layout = StageLayout<kDim>;
  const DeviceTile tile = p.tiles.tiles[blockIdx.x];
  const int kv_head = blockIdx.y;
  const DeviceList list = p.plan.lists[tile.sequence];
  const Reach reach = reach_of(p, tile);
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(stages));

  LaneQueries lane_queries;
  for (int h = 0; h < 2; ++h) {
    const int m = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
    const int row = tile.row_begin + min(m / p.group, tile.row_count - 1);
    const int head = kv_head * p.group + m % p.group;
    const bool real = m < tile.row_count * p.group;
    lane_queries.x[h] = real ? p.turned + (int64_t{row} * p.heads + head) * kDim : nullptr;
    lane_queries.position[h] = p.plan.positions[row];
  }

  WideState<type, kDim> state;
  int framed_by = -1;
  int current = next_seen(p, list, reach, 0);
  const auto fetch = [&](int r, int stage) {
    if (r < list.count) {
      const std::byte* block = p.plan.references[list.begin + r].data;
      fetch_page<kDim>(device_head(p.layout, block, p.layer, kv_head), shared + stage * Layout::kBytes);
    }
    close_copies();
  };
  fetch(current, 0);
  for (int stage = 0; current < list.count; stage ^= 1) {
    const int next = next_seen(p, list, reach, current + 1);
    fetch(next, stage ^ 1);
    const DeviceReference reference = p.plan.references[list.begin + current];
    if (framed_by != reference.shift_row) {
      state.turn_to(p, lane_queries, reference.shift_row);
      framed_by = reference.shift_row;
    }
    wait_copies<1>();
    __syncthreads();
    if (reference.mask != ~0ull) {
      clear_unfilled<kDim>(reference.mask, stages + stage * Layout::kBytes);
      __syncthreads();
    }
    float scores[8][4] = {};
    score_stage(state, shared + stage * Layout::kBytes, scores);
    soften(p, reference, seen_by_all(p, reference, reach), lane_queries, scores, state);
    add_values(shared + stage * Layout::kBytes, scores, state);
    __syncthreads();  // this stage is filled again in the next round
    current = next;
  }
  store_tile(p, tile, kv_head, out_element, state);
}

template <KvType type, int kDim>
void launch(const WideParameters& p, Element out_element, cudaStream_t stream) {
  constexpr int kBytes = kStages * StageLayout<kDim>::kBytes;
  cudaFuncSetAttribute(wide_kernel<type, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const dim3 grid(static_cast<unsigned>(p.tiles.count), static_cast<unsigned>(p.layout.kv_heads));
  wide_kernel<type, kDim><<<grid, kThreads, kBytes, stream>>>(p, out_element);
}

template <KvType type>
void launch_of_dimension(const WideParameters& p, Element out_element, cudaStream_t stream) {
  if (p.layout.head_dim == 64) {
    launch<type, 64>(p, out_element, stream);
  } else {
    launch<type, 128>(p, out_element, stream);
  }
}

}  // namespace

bool can_attend_wide(const KvShape& shape, int group) {
  const bool narrow = shape.type == KvType::kF16 || shape.type == KvType::kBF16;
  return narrow && (shape.head_dim == 64 || shape.head_dim == 128) && group <= kWideQueries;
}

void attend_wide(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  if (tiles.count == 0) return;
  WideParameters p{};
  p.layout = page_layout(attend.shape);
  p.plan = attend.plan;
  p.tiles = tiles;
  p.shift_angles = attend.shift_angles;
  p.turned = attend.turned;
  p.out = attend.out.data;
  p.lse = attend.lse;
  p.layer = attend.layer;
  p.heads = attend.heads;
  p.group = attend.heads / attend.shape.kv_heads;
  p.scale = attend.scale;
  p.window = attend.window;
  p.soft_cap = attend.soft_cap;
  p.turning = {attend.pairs, attend.adjacent};
  if (attend.shape.type == KvType::kF16) {
    launch_of_dimension<KvType::kF16>(p, attend.out.element, stream);
  } else {
    launch_of_dimension<KvType::kBF16>(p, attend.out.element, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
