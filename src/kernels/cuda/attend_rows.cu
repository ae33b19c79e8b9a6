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
  const float* row_angles;
  const float* shift_angles;
  const float* q;
  int64_t q_stride;
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
  float absolute[kMostHeadDim];  // the query turned by its own position, scaled
  float framed[kMostHeadDim];    // turned into the frame at hand
  float probability[kPageTokens];
};

// to = from turned by a table row; the rest is copied.
__device__ void turn_query(const float* from, float* to, const float* cosines, const RowParameters& p,
                           float factor) {
  const int lane = threadIdx.x % 32;
  for (int i = lane; i < p.layout.head_dim; i += 32) {
    if (i < p.pairs) {
      const int a = p.adjacent ? 2 * i : i;
      const int b = p.adjacent ? 2 * i + 1 : i + p.pairs;
      const Pair turned = turn({from[a] * factor, from[b] * factor}, cosines[i], cosines[p.pairs + i]);
      to[a] = turned.a;
      to[b] = turned.b;
    } else if (i >= 2 * p.pairs) {
      to[i] = from[i] * factor;
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
  const int row = blockIdx.x;
  const int head = blockIdx.y * kWarps + warp;
  if (head >= p.heads) return;
  WarpMemory& mine = memory[warp];
  const int d = p.layout.head_dim;
  const int kv_head = head / (p.heads / p.layout.kv_heads);
  const int32_t position = p.plan.positions[row];
  turn_query(p.q + row * p.q_stride + int64_t{head} * d, mine.absolute,
             p.row_angles + int64_t{row} * 2 * p.pairs, p, p.scale);

  float max = -INFINITY;
  float sum = 0;
  float out[kLaneDims] = {};
  int framed_by = -1;
  const DeviceList list = p.plan.lists[p.plan.row_sequence[row]];
  for (int r = 0; r < list.count; ++r) {
    const DeviceReference reference = p.plan.references[list.begin + r];
    const uint64_t visible = visible_to(p, reference, position);
    if (visible == 0) continue;
    if (framed_by != reference.shift_row) {
      __syncwarp();
      turn_query(mine.absolute, mine.framed, p.shift_angles + int64_t{reference.shift_row} * 2 * p.pairs, p, 1);
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
  const dim3 grid(static_cast<unsigned>(attend.plan.rows),
                  static_cast<unsigned>((attend.heads + kWarps - 1) / kWarps));
  rows_kernel<type><<<grid, kWarps * 32, 0, stream>>>(p, attend.out.element);
}

}  // namespace

void attend_rows(const DeviceAttend& attend, cudaStream_t stream) {
  if (attend.plan.rows == 0) return;
  const RowParameters p{page_layout(attend.shape), attend.plan,    attend.row_angles, attend.shift_angles,
                        attend.q,                  attend.q_stride, attend.out.data,   attend.lse,
                        attend.layer,              attend.heads,    attend.scale,      attend.window,
                        attend.soft_cap,           attend.pairs,    attend.adjacent};
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
