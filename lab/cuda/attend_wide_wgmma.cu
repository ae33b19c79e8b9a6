// Kernel 4 of the laboratory: attend_wide with wgmma. Products read a page from shared memory once for 64
// queries; while the probabilities of one page are made, those of the next page's scores and of the last
// page's values are under way. int8 pages become halves on their way to shared memory.
#include "cuda/attend_wide_wgmma.h"

#include <cmath>

#include "cuda/warpgroup.cuh"
#include "kernels/cuda/page_access.cuh"
#include "kernels/cuda/turned.cuh"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kThreads = kWideQueries * 2;  // two warpgroups of 64 queries
constexpr int kStages = 4;
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

// A page of one KV head in shared memory, in pieces of 16 bytes. Keys: eight slots of one dimension a piece,
// dimension after dimension. Values: eight dimensions of one slot a piece, slot after slot. Gaps between
// columns of pieces spread the copies over the banks.
template <int kDim>
struct Layout {
  static constexpr int kKeyColumn = kDim * 16 + 64;
  static constexpr int kKeyBytes = kPageTokens / 8 * kKeyColumn;
  static constexpr int kValueColumn = kPageTokens * 16 + 16;
  static constexpr int kStageBytes = kKeyBytes + kDim / 8 * kValueColumn;
  static constexpr int kQueryRow = kDim + 8;  // floats; behind the stages
  static constexpr int kBytes = kStages * kStageBytes + kWideQueries * kQueryRow * 4;
};

__device__ void copy_16_bytes(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ void close_copies() {
  asm volatile("cp.async.commit_group;");
}
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// Eight int8 values and their scales (or the one of them all) as eight halves.
__device__ uint4 scaled_halves(const uint2& bytes, const float* scales, int scale_step) {
  uint4 halves = Narrow<KvType::kI8>::widen(bytes);
  auto* words = reinterpret_cast<uint32_t*>(&halves);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
    words[i] =
        NarrowHalf::pack(pair.x * scales[2 * i * scale_step], pair.y * scales[(2 * i + 1) * scale_step]);
  }
  return halves;
}

// int8 pages become halves on their way. This waits for the bytes, unlike the copies of 16-bit pages.
template <int kDim>
__device__ void widen_page(const DeviceHead& page, std::byte* stage) {
  using L = Layout<kDim>;
  for (int piece = threadIdx.x; piece < kDim * 4;
       piece += kThreads) {  // 16 bytes of K: 16 slots of a dimension
    const uint4 x = *reinterpret_cast<const uint4*>(page.k + int64_t{piece} * 16);
    const int group = piece / kDim;
    std::byte* to = stage + 2 * group * L::kKeyColumn + piece % kDim * 16;
    *reinterpret_cast<uint4*>(to) = scaled_halves({x.x, x.y}, page.k_scale + 16 * group, 1);
    *reinterpret_cast<uint4*>(to + L::kKeyColumn) =
        scaled_halves({x.z, x.w}, page.k_scale + 16 * group + 8, 1);
  }
  for (int piece = threadIdx.x; piece < kDim * 4; piece += kThreads) {  // of V: 16 dimensions of a slot
    const uint4 x = *reinterpret_cast<const uint4*>(page.v + int64_t{piece} * 16);
    const int slot = piece / (kDim / 16);
    std::byte* to = stage + L::kKeyBytes + piece % (kDim / 16) * 2 * L::kValueColumn + slot * 16;
    *reinterpret_cast<uint4*>(to) = scaled_halves({x.x, x.y}, page.v_scale + slot, 0);
    *reinterpret_cast<uint4*>(to + L::kValueColumn) = scaled_halves({x.z, x.w}, page.v_scale + slot, 0);
  }
}

template <int kDim>
__device__ void fetch_page(const DeviceHead& page, uint32_t stage) {
  using L = Layout<kDim>;
#pragma unroll
  for (int i = 0; i < kDim * 8 / kThreads; ++i) {  // of K: [group of 16 slots][dimension][half of it]
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int column = piece / (2 * kDim) * 2 + piece % 2;
    copy_16_bytes(stage + column * L::kKeyColumn + piece / 2 % kDim * 16, page.k + int64_t{piece} * 16);
  }
#pragma unroll
  for (int i = 0; i < kDim * 8 / kThreads; ++i) {  // of V: [slot][eighth of a row]
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int column = piece % (kDim / 8);
    copy_16_bytes(stage + L::kKeyBytes + column * L::kValueColumn + piece / (kDim / 8) * 16,
                  page.v + int64_t{piece} * 16);
  }
}

// Values of slots without bytes of their own may be NaN, which no zero probability removes.
template <int kDim>
__device__ void clear_unfilled(uint64_t mask, std::byte* stage) {
  using L = Layout<kDim>;
  for (int i = threadIdx.x; i < kPageTokens * kDim / 8; i += kThreads) {
    const int slot = i % kPageTokens;
    if (mask >> slot & 1) continue;
    *reinterpret_cast<uint4*>(stage + L::kKeyBytes + i / kPageTokens * L::kValueColumn + slot * 16) = uint4{};
  }
}

// The positions that a tile's rows have.
struct Reach {
  int32_t lowest;
  int32_t highest;
};

__device__ Reach reach_of(const WideParameters& p, const DeviceTile& tile) {
  Reach reach{INT32_MAX, INT32_MIN};
  for (int row = 0; row < tile.row_count; ++row) {
    const int32_t position = p.plan.positions[tile.row_begin + row];
    reach.lowest = min(reach.lowest, position);
    reach.highest = max(reach.highest, position);
  }
  return reach;
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

// Every query of the tile, scaled, as float32; zeros beyond the tile.
template <int kDim>
__device__ void load_queries(const WideParameters& p, const DeviceTile& tile, int kv_head, float* queries) {
  // With a cap scores are needed in natural units; else powers of two save a multiplication a score.
  const float factor = p.soft_cap > 0 ? p.scale : p.scale * kLog2E;
  const int count = tile.row_count * p.group;
  for (int i = threadIdx.x; i < kWideQueries * kDim / 4; i += kThreads) {
    const int m = i / (kDim / 4);
    const int dim = i % (kDim / 4) * 4;
    float4 value{};
    if (m < count) {
      const int64_t row = tile.row_begin + m / p.group;
      const int64_t head = int64_t{kv_head} * p.group + m % p.group;
      value = *reinterpret_cast<const float4*>(p.turned + (row * p.heads + head) * kDim + dim);
    }
    float* to = queries + m * Layout<kDim>::kQueryRow + dim;
    to[0] = value.x * factor;
    to[1] = value.y * factor;
    to[2] = value.z * factor;
    to[3] = value.w * factor;
  }
}

// One lane's share of its warp's 16 queries: rows g and g + 8.
template <KvType type, int kDim>
struct WideState {
  uint32_t queries[kDim / 16][4];  // in the frame of a page
  float out[kDim / 64][8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's slots only
  int32_t position[2];

  __device__ void turn_to(const WideParameters& p, const float* all, int shift_row) {
    const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.turning.pairs;
    const int lane = threadIdx.x % 32;
    const float* mine = all + (threadIdx.x / 32 * 16 + lane / 4) * Layout<kDim>::kQueryRow;
    if (p.turning.pairs == kDim / 2 && !p.turning.adjacent) {
      turn_halves(mine, cosines);
      return;
    }
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = mine + i % 2 * 8 * Layout<kDim>::kQueryRow;
        const int dim = 16 * step + lane % 4 * 2 + i / 2 * 8;
        queries[step][i] = Narrow<type>::pack(turned_dimension(x, dim, cosines, p.turning),
                                              turned_dimension(x, dim + 1, cosines, p.turning));
      }
    }
  }

  // The usual kind: both halves of a pair are this lane's own.
  __device__ void turn_halves(const float* mine, const float* cosines) {
#pragma unroll
    for (int step = 0; step < kDim / 32; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* x = mine + i % 2 * 8 * Layout<kDim>::kQueryRow;
        const int dim = 16 * step + threadIdx.x % 4 * 2 + i / 2 * 8;
        const float2 a = *reinterpret_cast<const float2*>(x + dim);
        const float2 b = *reinterpret_cast<const float2*>(x + dim + kDim / 2);
        const float2 cosine = *reinterpret_cast<const float2*>(cosines + dim);
        const float2 sine = *reinterpret_cast<const float2*>(cosines + kDim / 2 + dim);
        queries[step][i] = Narrow<type>::pack(a.x * cosine.x - b.x * sine.x, a.y * cosine.y - b.y * sine.y);
        queries[step + kDim / 32][i] =
            Narrow<type>::pack(a.x * sine.x + b.x * cosine.x, a.y * sine.y + b.y * cosine.y);
      }
    }
  }
};

// Begins scores[n]: queries g and g + 8 against slots 8n + 2t and 8n + 2t + 1.
template <KvType type, int kDim>
__device__ void begin_scores(const WideState<type, kDim>& state, uint32_t stage, float (&scores)[8][4]) {
  hold(scores);
  open_products();
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    const uint64_t keys = describe_matrix(stage + step * 256, 128, Layout<kDim>::kKeyColumn);
    WideProduct<type>::multiply_wide(scores, state.queries[step], keys, step > 0);
  }
  close_products();
}

// Begins out += probabilities x values.
template <KvType type, int kDim>
__device__ void begin_values(uint32_t stage, const float (&probabilities)[8][4],
                             WideState<type, kDim>& state) {
  using N = Narrow<type>;
  uint32_t a[kPageTokens / 16][4];
#pragma unroll
  for (int step = 0; step < kPageTokens / 16; ++step) {
    const auto& low = probabilities[2 * step];
    const auto& high = probabilities[2 * step + 1];
    a[step][0] = N::pack(low[0], low[1]);
    a[step][1] = N::pack(low[2], low[3]);
    a[step][2] = N::pack(high[0], high[1]);
    a[step][3] = N::pack(high[2], high[3]);
  }
  for (auto& half : state.out) hold(half);
  open_products();
#pragma unroll
  for (int step = 0; step < kPageTokens / 16; ++step) {
#pragma unroll
    for (int half = 0; half < kDim / 64; ++half) {
      const uint32_t at =
          stage + Layout<kDim>::kKeyBytes + half * 8 * Layout<kDim>::kValueColumn + step * 256;
      WideProduct<type>::multiply_wide(state.out[half], a[step],
                                       describe_matrix(at, 128, Layout<kDim>::kValueColumn), true);
    }
  }
  close_products();
}

// Bit 2n + i: whether a query at `position` sees slot 8n + 2t + i.
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

__device__ void cap_scores(const WideParameters& p, float (&scores)[8][4]) {
#pragma unroll
  for (auto& row : scores) {
#pragma unroll
    for (float& score : row) score = p.soft_cap * tanhf(score / p.soft_cap) * kLog2E;
  }
}

template <KvType type, int kDim>
__device__ void hide_scores(const WideParameters& p, const DeviceReference& reference,
                            const WideState<type, kDim>& state, float (&scores)[8][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t seen = seen_slots(p, reference, state.position[h]);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!(seen >> (2 * n + i) & 1)) scores[n][2 * h + i] = -INFINITY;
      }
    }
  }
}

// Scores become probabilities under the new maxima; `keep` is what the state so far is to be multiplied by.
template <KvType type, int kDim>
__device__ void soften(float (&scores)[8][4], WideState<type, kDim>& state, float (&keep)[2]) {
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
}

template <KvType type, int kDim>
__device__ void rescale(const float (&keep)[2], WideState<type, kDim>& state) {
#pragma unroll
  for (auto& half : state.out) {
#pragma unroll
    for (auto& tile : half) {
#pragma unroll
      for (int i = 0; i < 4; ++i) tile[i] *= keep[i / 2];
    }
  }
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
      const float low = state.out[n / 8][n % 8][2 * h] * inverse;
      const float high = state.out[n / 8][n % 8][2 * h + 1] * inverse;
      if (out_element == Element::kF32) {
        *reinterpret_cast<float2*>(static_cast<float*>(p.out) + i) = {low, high};
      } else {
        *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + i) = NarrowBrain::pack(low, high);
      }
    }
    if (p.lse && lane % 4 == 0) p.lse[at] = sum > 0 ? state.max[h] / kLog2E + logf(sum) : -INFINITY;
  }
}

// What walks a tile through its pages: page i lies in stage i % kStages.
template <KvType type, int kDim>
struct Walk {
  const WideParameters& p;
  DeviceList list;
  Reach reach;
  int kv_head;
  std::byte* shared;
  int framed_by = -1;

  __device__ std::byte* stage(int i) const { return shared + i % kStages * Layout<kDim>::kStageBytes; }
  __device__ uint32_t stage_address(int i) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(stage(i)));
  }
  __device__ const float* queries() const {
    return reinterpret_cast<const float*>(shared + kStages * Layout<kDim>::kStageBytes);
  }
  __device__ DeviceReference reference(int r) const { return p.plan.references[list.begin + r]; }
  __device__ int next(int r) const { return next_seen(p, list, reach, r); }

  __device__ void fetch(int r, int i) const {
    if (r < list.count) {
      const DeviceHead page = device_head(p.layout, reference(r).data, p.layer, kv_head);
      if constexpr (type == KvType::kI8) {
        widen_page<kDim>(page, stage(i));
      } else {
        fetch_page<kDim>(page, stage_address(i));
      }
    }
    close_copies();
  }
  // Page i has arrived, whole and for everybody; nobody reads page i - 3 any more.
  __device__ void arrive(int r, int i) const {
    wait_copies();
    publish_shared();
    __syncthreads();
    const uint64_t mask = reference(r).mask;
    if (mask == ~0ull) return;
    clear_unfilled<kDim>(mask, stage(i));
    publish_shared();
    __syncthreads();
  }
  __device__ void begin(int r, int i, WideState<type, kDim>& state, float (&scores)[8][4]) {
    const int shift_row = reference(r).shift_row;
    if (framed_by != shift_row) state.turn_to(p, queries(), shift_row);
    framed_by = shift_row;
    begin_scores(state, stage_address(i), scores);
  }
};

// While a page's probabilities are made, the products of the next page's scores are under way, and those of
// the last page's values.
template <KvType type, int kDim>
__device__ void walk_pages(Walk<type, kDim>& walk, WideState<type, kDim>& state) {
  const WideParameters& p = walk.p;
  int r = walk.next(0);
  int next = walk.next(r + 1);
  if (r >= walk.list.count) return;
  float scores[8][4] = {};
  float coming[8][4] = {};
  walk.fetch(r, 0);
  walk.arrive(r, 0);
  walk.fetch(next, 1);
  walk.begin(r, 0, state, scores);
  wait_products<0>();
  hold(scores);
  for (int i = 0; r < walk.list.count; ++i) {
    const bool more = next < walk.list.count;
    int after = walk.list.count;
    if (more) {
      after = walk.next(next + 1);
      walk.arrive(next, i + 1);
      walk.fetch(after, i + 2);
      walk.begin(next, i + 1, state, coming);
    }
    const DeviceReference reference = walk.reference(r);
    if (p.soft_cap > 0) cap_scores(p, scores);
    if (!seen_by_all(p, reference, walk.reach)) hide_scores(p, reference, state, scores);
    float keep[2];
    soften(scores, state, keep);
    if (more) {
      wait_products<1>();
    } else {
      wait_products<0>();
    }
    for (auto& half : state.out) hold(half);
    rescale(keep, state);
    begin_values(walk.stage_address(i), scores, state);
    if (more) {
      wait_products<1>();
      hold(coming);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) scores[n][j] = coming[n][j];
      }
    }
    r = next;
    next = after;
  }
  wait_products<0>();
  for (auto& half : state.out) hold(half);
}

template <KvType type, int kDim>
__global__ void __launch_bounds__(kThreads, 1) wide_kernel(WideParameters p, Element out_element) {
  extern __shared__ __align__(128) std::byte shared[];
  const DeviceTile tile = p.tiles.tiles[blockIdx.x];
  const int kv_head = blockIdx.y;
  Walk<type, kDim> walk{p, p.plan.lists[tile.sequence], reach_of(p, tile), kv_head, shared};
  load_queries<kDim>(p, tile, kv_head, const_cast<float*>(walk.queries()));
  WideState<type, kDim> state;
  for (int h = 0; h < 2; ++h) {
    const int m = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
    state.position[h] = p.plan.positions[tile.row_begin + min(m / p.group, tile.row_count - 1)];
  }
  __syncthreads();
  walk_pages(walk, state);
  store_tile(p, tile, kv_head, out_element, state);
}

template <KvType type, int kDim>
void launch(const WideParameters& p, Element out_element, cudaStream_t stream) {
  constexpr int kBytes = Layout<kDim>::kBytes;
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

namespace lab {

void attend_wide_wgmma(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
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
  switch (attend.shape.type) {
    case KvType::kF32:
      return;  // for attend_rows
    case KvType::kF16:
      return launch_of_dimension<KvType::kF16>(p, attend.out.element, stream);
    case KvType::kBF16:
      return launch_of_dimension<KvType::kBF16>(p, attend.out.element, stream);
    case KvType::kI8:
      return launch_of_dimension<KvType::kI8>(p, attend.out.element, stream);
  }
}

}  // namespace lab

}  // namespace rhapsode::kernels::cuda
