// The simplest attend that is right for every shape: one warp a row and head, keys on lanes, online softmax.
#include <cmath>

#include "kernels/cuda/attend.h"
#include "kernels/cuda/page_access.cuh"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kWarps = 4;  // a block
constexpr int kMostHeadDim = 256;
constexpr int kLaneDims = kMostHeadDim / 32;

struct RowParameters {
  PageLayout layout;
  DevicePlan plan;
  TileList tiles;
  const float* shift_angles;
  const float* turned;
  void* out;
  float* lse;
  int layer;
  int heads;
  float scale;
  int32_t window;
  float soft_cap;
  int pairs;
  bool adjacent;
};

// What one warp keeps in shared memory.
struct WarpMemory {
  float framed[kMostHeadDim];  // the query in the frame at hand, scaled
  float probability[kPageTokens];
};

// to = from, scaled and turned by a table row.
__device__ void turn_query(const float* from, float* to, const float* cosines, const RowParameters& p) {
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

__device__ uint64_t visible_to(const RowParameters& p, const DeviceReference& reference, int32_t position) {
  if (reference.gathered < 0) return reference.mask & visible_consecutive(reference, position, p.window);
  const int lane = threadIdx.x % 32;
  const int32_t* positions = p.plan.gathered + int64_t{reference.gathered} * kPageTokens;
  const unsigned low =
      __ballot_sync(~0u, sees(position, positions[lane], p.window, reference.sink));
  const unsigned high =
      __ballot_sync(~0u, sees(position, positions[lane + 32], p.window, reference.sink));
  return reference.mask & (uint64_t{high} << 32 | low);
}

__device__ float warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}
__device__ float warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// The score of one slot; -inf where it is not visible.
template <KvType type>
__device__ float score(const RowParameters& p, const DeviceHead& head, const float* q, int slot, bool visible) {
  using Element = PageElement<type>;
  if (!visible) return -INFINITY;
  const int d = p.layout.head_dim;
  const auto* k = reinterpret_cast<const typename Element::Type*>(head.k) + key_index(d, slot, 0);
  float sum = 0;
  for (int i = 0; i < d; ++i) sum += q[i] * Element::load(k[i * kKeyGroup]);
  if constexpr (type == KvType::kI8) sum *= head.k_scale[slot];
  return p.soft_cap > 0 ? p.soft_cap * tanhf(sum / p.soft_cap) : sum;
}

template <KvType type>
__global__ void rows_kernel(RowParameters p, Element out_element) {
  using PageType = PageElement<type>;
  using T = typename PageType::Type;
  __shared__ WarpMemory memory[kWarps];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const DeviceTile tile = p.tiles.tiles[blockIdx.x / p.tiles.rows];
  const int row_of_tile = static_cast<int>(blockIdx.x) % p.tiles.rows;
  const int head = blockIdx.y * kWarps + warp;
  if (row_of_tile >= tile.row_count || head >= p.heads) return;
  const int row = tile.row_begin + row_of_tile;
  WarpMemory& mine = memory[warp];
  const int d = p.layout.head_dim;
  const int kv_head = head / (p.heads / p.layout.kv_heads);
  const int32_t position = p.plan.positions[row];
  const float* query = p.turned + (int64_t{row} * p.heads + head) * d;
  float max = -INFINITY;
  float sum = 0;
  float out[kLaneDims] = {};
  int framed_by = -1;
  const DeviceList list = p.plan.lists[tile.sequence];
  for (int r = 0; r < list.count; ++r) {
    const DeviceReference reference = p.plan.references[list.begin + r];
    const uint64_t visible = visible_to(p, reference, position);
    if (visible == 0) continue;
    if (framed_by != reference.shift_row) {
      __syncwarp();
      turn_query(query, mine.framed, p.shift_angles + int64_t{reference.shift_row} * 2 * p.pairs, p);
      framed_by = reference.shift_row;
    }
    const DeviceHead page = device_head(p.layout, reference.data, p.layer, kv_head);
    const float low = score<type>(p, page, mine.framed, lane, visible >> lane & 1);
    const float high = score<type>(p, page, mine.framed, lane + 32, visible >> (lane + 32) & 1);
    const float new_max = fmaxf(max, warp_max(fmaxf(low, high)));
    const float keep = __expf(max - new_max);
    max = new_max;
    const float p_low = __expf(low - max);
    const float p_high = __expf(high - max);
    sum = sum * keep + warp_sum(p_low + p_high);
    if constexpr (type == KvType::kI8) {
      // A hidden slot's scale may be anything, NaN included.
      mine.probability[lane] = p_low > 0 ? p_low * page.v_scale[lane] : 0.0f;
      mine.probability[lane + 32] = p_high > 0 ? p_high * page.v_scale[lane + 32] : 0.0f;
    } else {
      mine.probability[lane] = p_low;
      mine.probability[lane + 32] = p_high;
    }
    __syncwarp();
    for (float& x : out) x *= keep;
    const T* v = reinterpret_cast<const T*>(page.v);
    for (uint64_t rest = visible; rest != 0; rest &= rest - 1) {
      const int slot = __ffsll(static_cast<long long>(rest)) - 1;
      const float weight = mine.probability[slot];
#pragma unroll
      for (int i = 0; i < kLaneDims; ++i) {
        if (i * 32 + lane < d) out[i] += weight * PageType::load(v[slot * d + i * 32 + lane]);
      }
    }
    __syncwarp();
  }

  const float inverse = sum > 0 ? 1.0f / sum : 0.0f;
  const int64_t at = (int64_t{row} * p.heads + head) * d;
#pragma unroll
  for (int i = 0; i < kLaneDims; ++i) {
    const int dim = i * 32 + lane;
    if (dim >= d) continue;
    if (out_element == Element::kF32) {
      static_cast<float*>(p.out)[at + dim] = out[i] * inverse;
    } else {
      static_cast<__nv_bfloat16*>(p.out)[at + dim] = __float2bfloat16(out[i] * inverse);
    }
  }
  if (p.lse && lane == 0) p.lse[int64_t{row} * p.heads + head] = sum > 0 ? max + logf(sum) : -INFINITY;
}

template <KvType type>
void launch(const DeviceAttend& attend, const RowParameters& p, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(p.tiles.count * p.tiles.rows),
                  static_cast<unsigned>((attend.heads + kWarps - 1) / kWarps));
  rows_kernel<type><<<grid, kWarps * 32, 0, stream>>>(p, attend.out.element);
}

}  // namespace

void attend_rows(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  if (tiles.count == 0) return;
  RowParameters p{page_layout(attend.shape), attend.plan, tiles, attend.shift_angles, attend.turned};
  p.out = attend.out.data;
  p.lse = attend.lse;
  p.layer = attend.layer;
  p.heads = attend.heads;
  p.scale = attend.scale;
  p.window = attend.window;
  p.soft_cap = attend.soft_cap;
  p.pairs = attend.pairs;
  p.adjacent = attend.adjacent;
  switch (attend.shape.type) {
    case KvType::kF32:
      return launch<KvType::kF32>(attend, p, stream);
    case KvType::kF16:
      return launch<KvType::kF16>(attend, p, stream);
    case KvType::kBF16:
      return launch<KvType::kBF16>(attend, p, stream);
    case KvType::kI8:
      return launch<KvType::kI8>(attend, p, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
