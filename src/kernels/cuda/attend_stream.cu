#include "kernels/cuda/attend_stream.h"

#include <cmath>

#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/stream_merge.cuh"

namespace rhapsode::kernels::cuda {

namespace {

using namespace stream;  // NOLINT(google-build-using-namespace)

// What registers allow: wider heads keep more of a page in flight.
constexpr int blocks_per_processor(int head_dim) {
  return head_dim <= 64 ? 3 : 2;
}
constexpr int kLeastPagesOfAWarp = 1;

template <int kDim>
__device__ void load_queries(const StreamParameters& p, const Tile& tile, BlockMemory<kDim>& memory) {
  // With a cap scores are needed in natural units; else powers of two save a multiplication a score.
  const float factor = p.soft_cap > 0 ? p.scale : p.scale * kLog2E;
  for (int i = threadIdx.x; i < kStreamQueries * kDim; i += kWarps * 32) {
    const int n = i / kDim;
    const int dim = i % kDim;
    float value = 0;
    if (n < tile.queries) {
      value = factor * p.turned[(int64_t{tile.row(n)} * p.heads + tile.head(n)) * kDim + dim];
    }
    memory.queries[n][dim] = value;
  }
  __syncthreads();
}

// The state of one warp: queries 2t and 2t + 1 of lane t.
template <int kDim>
struct WarpState {
  float out[kDim / 16][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's slots only
};

template <KvType type, int kDim>
struct Queries {
  uint32_t b[kDim / 16][2];
  int framed_by = -1;

  // Query g in the frame of a page: the dimensions that load_keys() gives this lane.
  __device__ void turn_to(const StreamParameters& p, const BlockMemory<kDim>& memory, int shift_row) {
    if (framed_by == shift_row) return;
    framed_by = shift_row;
    const int lane = threadIdx.x % 32;
    const float* x = memory.queries[lane / 4];
    const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.turning.pairs;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int dim = 16 * step + lane % 4;
      b[step][0] = Narrow<type>::pack(turned_dimension(x, dim, cosines, p.turning),
                                      turned_dimension(x, dim + 4, cosines, p.turning));
      b[step][1] = Narrow<type>::pack(turned_dimension(x, dim + 8, cosines, p.turning),
                                      turned_dimension(x, dim + 12, cosines, p.turning));
    }
  }
};

// Slots of a page that queries 2t and 2t + 1 may see.
__device__ void visible_to_lane(const StreamParameters& p, const Tile& tile, const DeviceReference& reference,
                                const int32_t (&positions)[2], uint64_t (&visible)[2]) {
  const int lane = threadIdx.x % 32;
  if (reference.gathered < 0) {
    for (int i = 0; i < 2; ++i) {
      visible[i] = reference.mask & visible_consecutive(reference, positions[i], p.window);
    }
  } else {
    const int32_t* keys = p.plan.gathered + int64_t{reference.gathered} * kPageTokens;
    const int32_t low_key = keys[lane];
    const int32_t high_key = keys[lane + 32];
    visible[0] = visible[1] = 0;
    for (int row = 0; row < tile.rows.row_count; ++row) {
      const int32_t position = p.plan.positions[tile.rows.row_begin + row];
      const unsigned low = __ballot_sync(~0u, sees(position, low_key, p.window, reference.sink));
      const unsigned high = __ballot_sync(~0u, sees(position, high_key, p.window, reference.sink));
      const uint64_t seen = reference.mask & (uint64_t{high} << 32 | low);
      for (int i = 0; i < 2; ++i) {
        if ((lane % 4 * 2 + i) / tile.heads_here == row) visible[i] = seen;
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (lane % 4 * 2 + i >= tile.queries) visible[i] = 0;
  }
}

// scores[j]: slots 8g + 2j and 8g + 2j + 1 against queries 2t and 2t + 1.
template <KvType type, int kDim>
__device__ void score_page(const DeviceHead& page, const Queries<type, kDim>& queries,
                           float (&scores)[4][4]) {
  using N = Narrow<type>;
  constexpr int kElement = sizeof(typename N::Eight) / 8;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  // Slots 8g..8g+7 of one dimension lie side by side: half of a key group.
  const std::byte* k =
      page.k + (int64_t{g / 2} * kDim * kKeyGroup + lane % 4 * kKeyGroup + g % 2 * 8) * kElement;
  constexpr int kSteps = 4;  // loaded at once: 64 dimensions
#pragma unroll
  for (int begin = 0; begin < kDim / 16; begin += kSteps) {
    typename N::Eight raw[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        raw[step][c] = N::load(k + (16 * (begin + step) + 4 * c) * kKeyGroup * kElement);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 loads[4] = {N::widen(raw[step][0]), N::widen(raw[step][1]), N::widen(raw[step][2]),
                              N::widen(raw[step][3])};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        uint32_t a[4];
        fragment_of(loads, j, a);
        N::multiply(scores[j], a, queries.b[begin + step][0], queries.b[begin + step][1]);
      }
    }
  }
  if constexpr (type == KvType::kI8) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[j][i] *= page.k_scale[8 * g + 2 * j + i / 2];
    }
  }
}

__device__ float over_slots_max(float x) {
  for (int lanes = 4; lanes < 32; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}
__device__ float over_slots_sum(float x) {
  for (int lanes = 4; lanes < 32; lanes *= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Scores become probabilities under the new maxima, and the state is brought to those.
template <int kDim>
__device__ void soften(const StreamParameters& p, const uint64_t (&visible)[2], float (&scores)[4][4],
                       WarpState<kDim>& state) {
  const int g = threadIdx.x % 32 / 4;
  float keep[2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const unsigned seen = static_cast<unsigned>(visible[n] >> (8 * g)) & 0xffu;
    float most = -INFINITY;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        float& score = scores[j][2 * odd + n];
        if (p.soft_cap > 0) score = p.soft_cap * tanhf(score / p.soft_cap) * kLog2E;
        if (!(seen >> (2 * j + odd) & 1)) score = -INFINITY;
        most = fmaxf(most, score);
      }
    }
    const float max = fmaxf(state.max[n], over_slots_max(most));
    const float base = max == -INFINITY ? 0.0f : max;
    keep[n] = exp2f(state.max[n] - base);
    state.max[n] = max;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        float& score = scores[j][2 * odd + n];
        score = exp2f(score - base);
        sum += score;
      }
    }
    state.sum[n] = state.sum[n] * keep[n] + sum;
  }
#pragma unroll
  for (auto& tile : state.out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] *= keep[i % 2];
  }
}

// out += probabilities x values. Slots without bytes of their own may hold NaN, which no zero removes.
template <KvType type, int kDim>
__device__ void add_values(const DeviceHead& page, uint64_t mask, const float (&probabilities)[4][4],
                           WarpState<kDim>& state) {
  using N = Narrow<type>;
  constexpr int kElement = sizeof(typename N::Eight) / 8;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  uint32_t b[4][2];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[i] = probabilities[j][i];
      if constexpr (type == KvType::kI8) {
        if (p[i] > 0) p[i] *= page.v_scale[8 * g + 2 * j + i / 2];
      }
    }
    b[j][0] = transposed(N::pack(p[0], p[1]));
    b[j][1] = transposed(N::pack(p[2], p[3]));
  }
#pragma unroll
  for (int half = 0; half < kDim / 64; ++half) {
    typename N::Eight raw[4][4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int slot = 16 * t + 2 * j + c % 2 * 8 + c / 2;
        raw[j][c] = N::load(page.v + (int64_t{slot} * kDim + 64 * half + 8 * g) * kElement);
      }
    }
    if (mask != ~0ull) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int slot = 16 * t + 2 * j + c % 2 * 8 + c / 2;
          if (!(mask >> slot & 1)) raw[j][c] = {};
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint4 loads[4] = {N::widen(raw[j][0]), N::widen(raw[j][1]), N::widen(raw[j][2]),
                              N::widen(raw[j][3])};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        uint32_t a[4];
        fragment_of(loads, r, a);
        N::multiply(state.out[4 * half + r], a, b[j][0], b[j][1]);
      }
    }
  }
}

// A warp's share of the pages of a list, and what is known of it before anything is read.
struct Share {
  int begin;  // references
  int end;
  int32_t positions[2];   // of the lane's queries
  DeviceReference first;  // of the share
};

__device__ Share share_of(const StreamParameters& p, const Tile& tile) {
  const DeviceList list = p.plan.lists[tile.rows.sequence];
  const int parts = p.schedule.splits * kWarps;
  const int part = blockIdx.z * kWarps + threadIdx.x / 32;
  Share share;
  share.begin = list.begin + static_cast<int>(int64_t{list.count} * part / parts);
  share.end = list.begin + static_cast<int>(int64_t{list.count} * (part + 1) / parts);
  for (int i = 0; i < 2; ++i) {
    const int query = static_cast<int>(threadIdx.x) % 4 * 2 + i;
    share.positions[i] = p.plan.positions[tile.row(min(query, tile.queries - 1))];
  }
  share.first = share.begin < share.end ? p.plan.references[share.begin] : DeviceReference{};
  return share;
}

template <KvType type, int kDim>
__device__ void stream_pages(const StreamParameters& p, const Tile& tile, const Share& share,
                             const BlockMemory<kDim>& memory, WarpState<kDim>& state) {
  Queries<type, kDim> queries;
  DeviceReference next = share.first;
  for (int r = share.begin; r < share.end; ++r) {
    const DeviceReference reference = next;
    if (r + 1 < share.end) next = p.plan.references[r + 1];  // on its way while this page is read
    uint64_t visible[2];
    visible_to_lane(p, tile, reference, share.positions, visible);
    if (!__any_sync(~0u, (visible[0] | visible[1]) != 0)) continue;
    const DeviceHead page = device_head(p.layout, reference.data, p.layer, tile.kv_head);
    queries.turn_to(p, memory, reference.shift_row);
    float scores[4][4] = {};
    score_page<type, kDim>(page, queries, scores);
    soften(p, visible, scores, state);
    add_values<type, kDim>(page, reference.mask, scores, state);
  }
  for (float& sum : state.sum) sum = over_slots_sum(sum);
}

template <int kDim>
__device__ void store_state(const WarpState<kDim>& state, BlockMemory<kDim>& memory) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int n = lane % 4 * 2;
#pragma unroll
  for (int tile = 0; tile < kDim / 16; ++tile) {
    const int dim = tile / 4 * 64 + 8 * g + tile % 4 * 2;
    memory.out[warp][n][dim] = state.out[tile][0];
    memory.out[warp][n + 1][dim] = state.out[tile][1];
    memory.out[warp][n][dim + 1] = state.out[tile][2];
    memory.out[warp][n + 1][dim + 1] = state.out[tile][3];
  }
  if (g == 0) {
    for (int i = 0; i < 2; ++i) {
      memory.max[warp][n + i] = state.max[i];
      memory.sum[warp][n + i] = state.sum[i];
    }
  }
  __syncthreads();
}

template <KvType type, int kDim>
__global__ void __launch_bounds__(kWarps * 32, blocks_per_processor(kDim))
    stream_kernel(StreamParameters p, Element out_element) {
  __shared__ BlockMemory<kDim> memory;
  const Tile tile = make_tile(p);
  const Share share = share_of(p, tile);
  let_next_begin();
  // The memory has nothing else to do until the kernels in front have ended.
  if (share.begin < share.end) {
    prefetch_head(p.layout, device_head(p.layout, share.first.data, p.layer, tile.kv_head));
  }
  wait_for_previous();
  load_queries(p, tile, memory);
  WarpState<kDim> state;
  stream_pages<type, kDim>(p, tile, share, memory, state);
  store_state(state, memory);
  merge_warps(tile, memory);
  for (int i = threadIdx.x; i < tile.queries * kDim; i += kWarps * 32) {
    const int n = i / kDim;
    const int dim = i % kDim;
    const float sum = memory.sum[0][n];
    const float value = memory.out[0][n][dim];
    if (p.schedule.splits > 1) {
      float* partial = partial_of(p, blockIdx.z, n, kDim);
      partial[dim] = value;
      if (dim < 2) partial[kDim + dim] = dim == 0 ? memory.max[0][n] : sum;
      continue;
    }
    store_out(p.out, out_element, (int64_t{tile.row(n)} * p.heads + tile.head(n)) * kDim + dim,
              sum > 0 ? value / sum : 0.0f);
    if (dim == 0) store_lse(p, tile, n, memory.max[0][n], sum);
  }
}

template <KvType type, int kDim>
void launch(const StreamParameters& p, Element out_element, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>(p.schedule.tiles.count);
  const auto heads = static_cast<unsigned>(p.layout.kv_heads * p.head_tiles);
  const dim3 grid(tiles, heads, static_cast<unsigned>(p.schedule.splits));
  cudaLaunchAttribute early = early_launch();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(kWarps * 32);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, stream_kernel<type, kDim>, p, out_element);
  if (p.schedule.splits == 1) return;
  config.gridDim = dim3(tiles, heads, kStreamQueries);
  config.blockDim = dim3(kMergeThreads);
  cudaLaunchKernelEx(&config, merge_kernel<kDim>, p, out_element);
}

template <KvType type>
void launch_of_dimension(const StreamParameters& p, Element out_element, cudaStream_t stream) {
  if (p.layout.head_dim == 64) {
    launch<type, 64>(p, out_element, stream);
  } else {
    launch<type, 128>(p, out_element, stream);
  }
}

int head_tiles(const KvShape& shape, int heads) {
  const int group = heads / shape.kv_heads;
  return (group + kStreamQueries - 1) / kStreamQueries;
}

}  // namespace

bool can_stream(const KvShape& shape) {
  return shape.type != KvType::kF32 && (shape.head_dim == 64 || shape.head_dim == 128);
}

int stream_splits(const KvShape& shape, int heads, int tile_count, int most_references) {
  const int blocks = tile_count * shape.kv_heads * head_tiles(shape, heads);
  if (blocks == 0) return 1;
  const int wanted = kProcessors * blocks_per_processor(shape.head_dim) / blocks;
  const int useful = (most_references + kWarps * kLeastPagesOfAWarp - 1) / (kWarps * kLeastPagesOfAWarp);
  const int splits = wanted < useful ? wanted : useful;
  return splits < 1 ? 1 : (splits < kMostSplits ? splits : kMostSplits);
}

size_t stream_workspace_bytes(const KvShape& shape, int heads, int tile_count, int splits) {
  if (splits == 1) return 0;
  const auto blocks = static_cast<size_t>(tile_count) * shape.kv_heads * head_tiles(shape, heads) * splits;
  return blocks * kStreamQueries * (shape.head_dim + 2) * sizeof(float);
}

void attend_stream(const DeviceAttend& attend, const StreamSchedule& schedule, cudaStream_t stream) {
  if (schedule.tiles.count == 0) return;
  StreamParameters p{};
  p.layout = page_layout(attend.shape);
  p.plan = attend.plan;
  p.schedule = schedule;
  p.shift_angles = attend.shift_angles;
  p.turned = attend.turned;
  p.out = attend.out.data;
  p.lse = attend.lse;
  p.layer = attend.layer;
  p.heads = attend.heads;
  p.group = attend.heads / attend.shape.kv_heads;
  p.head_tiles = head_tiles(attend.shape, attend.heads);
  p.scale = attend.scale;
  p.window = attend.window;
  p.soft_cap = attend.soft_cap;
  p.turning = {attend.pairs, attend.adjacent};
  switch (attend.shape.type) {
    case KvType::kF32:
      return;  // can_stream() refuses it
    case KvType::kF16:
      return launch_of_dimension<KvType::kF16>(p, attend.out.element, stream);
    case KvType::kBF16:
      return launch_of_dimension<KvType::kBF16>(p, attend.out.element, stream);
    case KvType::kI8:
      return launch_of_dimension<KvType::kI8>(p, attend.out.element, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
