// The simplest attend that is right for every shape: one warp a row and head, keys on lanes, online softmax.
#include "kernels/cuda/row_math.cuh"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kWarps = 4;  // a block
constexpr int kLaneDims = kMostHeadDim / 32;

// What one warp keeps in shared memory.
struct WarpMemory {
  float framed[kMostHeadDim];  // the query in the frame at hand, scaled
  float probability[kPageTokens];
};

struct RowOutput {
  void* out;
  Element element;
  float* lse;
};

template <KvType type>
__global__ void rows_kernel(RowParameters p, TileList tiles, RowOutput output) {
  using PageType = PageElement<type>;
  using T = typename PageType::Type;
  __shared__ WarpMemory memory[kWarps];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const DeviceTile tile = tiles.tiles[blockIdx.x / tiles.rows];
  const int row_of_tile = static_cast<int>(blockIdx.x) % tiles.rows;
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
      turn_query(query, mine.framed, reference.shift_row, p);
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
    if (output.element == Element::kF32) {
      static_cast<float*>(output.out)[at + dim] = out[i] * inverse;
    } else {
      static_cast<__nv_bfloat16*>(output.out)[at + dim] = __float2bfloat16(out[i] * inverse);
    }
  }
  if (output.lse && lane == 0)
    output.lse[int64_t{row} * p.heads + head] = sum > 0 ? max + logf(sum) : -INFINITY;
}

template <KvType type>
void launch(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(tiles.count * tiles.rows),
                  static_cast<unsigned>((attend.heads + kWarps - 1) / kWarps));
  rows_kernel<type><<<grid, kWarps * 32, 0, stream>>>(row_parameters(attend), tiles,
                                                      {attend.out.data, attend.out.element, attend.lse});
}

}  // namespace

void attend_rows(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  if (tiles.count == 0) return;
  switch (attend.shape.type) {
    case KvType::kF32:
      return launch<KvType::kF32>(attend, tiles, stream);
    case KvType::kF16:
      return launch<KvType::kF16>(attend, tiles, stream);
    case KvType::kBF16:
      return launch<KvType::kBF16>(attend, tiles, stream);
    case KvType::kI8:
      return launch<KvType::kI8>(attend, tiles, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
