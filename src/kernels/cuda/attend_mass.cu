#include "kernels/cuda/attend_mass.h"

#include "kernels/cuda/attend_stream.h"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/cuda/turned.cuh"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kWarps = 4;

// One block a page of a list and KV head; its warps take the queries in turn.
template <KvType type>
__global__ void mass_kernel(RowParameters p, MassTarget target, const float* lse) {
  __shared__ float framed[kWarps][kMostHeadDim];
  __shared__ double sums[kWarps][kPageTokens];
  const DeviceList list = target.shared[blockIdx.z];
  const DeviceList read = p.plan.lists[blockIdx.z];
  const int r = blockIdx.x;
  if (r >= list.count || read.begin != list.begin || read.count != list.count) return;
  const DeviceReference reference = p.plan.references[list.begin + r];
  const DeviceSequence sequence = target.sequences[blockIdx.z];
  const DeviceHead page = device_head(p.layout, reference.data, p.layer, static_cast<int>(blockIdx.y));
  const int group = p.heads / p.layout.kv_heads;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  double low_sum = 0;
  double high_sum = 0;
  for (int i = warp; i < sequence.row_count * group; i += kWarps) {
    const int row = sequence.row_begin + i / group;
    const int head = static_cast<int>(blockIdx.y) * group + i % group;
    const uint64_t visible = visible_to(p, reference, p.plan.positions[row]);
    if (visible == 0) continue;
    const int64_t query = int64_t{row} * p.heads + head;
    __syncwarp();
    turn_query(p.turned + query * p.layout.head_dim, framed[warp], reference.shift_row, p);
    const float low = score<type>(p, page, framed[warp], lane, visible >> lane & 1);
    const float high = score<type>(p, page, framed[warp], lane + 32, visible >> (lane + 32) & 1);
    low_sum += static_cast<double>(__expf(low - lse[query]));
    high_sum += static_cast<double>(__expf(high - lse[query]));
  }
  sums[warp][lane] = low_sum;
  sums[warp][lane + 32] = high_sum;
  __syncthreads();
  if (threadIdx.x >= kPageTokens) return;
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += sums[w][threadIdx.x];
  atomicAdd(target.mass + int64_t{list.begin + r} * kPageTokens + threadIdx.x, sum);
}

// The same by matrix products, where attend_stream reads pages: queries are rounded to 16 bits. One block a
// page of a list and KV head; each warp takes a quarter of the page's slots, 8g + 2w and 8g + 2w + 1.
constexpr int kQueriesAtOnce = 64;

template <int kDim>
struct QueryTiles {
  uint32_t pairs[kQueriesAtOnce][kDim / 16][4][2];  // as B fragments hold them; [query][step][t][half]
  int32_t positions[kQueriesAtOnce];
  float lse[kQueriesAtOnce];
};

// Queries of a sequence and KV head, a row's heads side by side.
struct QueryPart {
  DeviceSequence sequence;
  int begin;
  int count;
};

// In a page's frame.
template <KvType type, int kDim>
__device__ void load_queries(const RowParameters& p, const float* lse, const QueryPart& part, int shift_row,
                             QueryTiles<kDim>& tiles) {
  const int group = p.heads / p.layout.kv_heads;
  const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.pairs;
  const auto row_of = [&](int i) { return part.sequence.row_begin + (part.begin + i) / group; };
  const auto query_of = [&](int i) {
    return int64_t{row_of(i)} * p.heads + static_cast<int>(blockIdx.y) * group + (part.begin + i) % group;
  };
  constexpr int kWords = kDim / 2;
  for (int i = threadIdx.x; i < kQueriesAtOnce * kWords; i += kWarps * 32) {
    const int query = i / kWords;
    const int step = i % kWords / 8;
    const int t = i % 8 / 2;
    const int half = i % 2;
    uint32_t pair = 0;
    if (query < part.count) {
      const float* x = p.turned + query_of(query) * kDim;
      const int dim = 16 * step + 8 * half + t;
      const Turning turning{p.pairs, p.adjacent};
      pair = Narrow<type>::pack(p.scale * turned_dimension(x, dim, cosines, turning),
                                p.scale * turned_dimension(x, dim + 4, cosines, turning));
    }
    tiles.pairs[query][step][t][half] = pair;
  }
  for (int i = threadIdx.x; i < part.count; i += kWarps * 32) {
    tiles.positions[i] = p.plan.positions[row_of(i)];
    tiles.lse[i] = lse[query_of(i)];
  }
}

// The quarter of a page's keys that a warp multiplies.
template <KvType type, int kDim>
__device__ void load_keys(const DeviceHead& page, uint32_t (&keys)[kDim / 16][4]) {
  using N = Narrow<type>;
  constexpr int kElement = sizeof(typename N::Eight) / 8;
  const int warp = threadIdx.x / 32;
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const std::byte* k = page.k + (int64_t{g / 2} * kDim * kKeyGroup + t * kKeyGroup + g % 2 * 8) * kElement;
#pragma unroll
  for (int step = 0; step < kDim / 16; ++step) {
    uint4 loads[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      loads[c] = N::widen(N::load(k + (16 * step + 4 * c) * kKeyGroup * kElement));
    }
    fragment_of(loads, warp, keys[step]);
  }
}

template <KvType type, int kDim>
__global__ void __launch_bounds__(kWarps * 32)
    mass_matrix_kernel(RowParameters p, MassTarget target, const float* lse) {
  __shared__ QueryTiles<kDim> tiles;
  const DeviceList list = target.shared[blockIdx.z];
  const DeviceList read = p.plan.lists[blockIdx.z];
  const int r = blockIdx.x;
  if (r >= list.count || read.begin != list.begin || read.count != list.count) return;
  const DeviceReference reference = p.plan.references[list.begin + r];
  const DeviceSequence sequence = target.sequences[blockIdx.z];
  const DeviceHead page = device_head(p.layout, reference.data, p.layer, static_cast<int>(blockIdx.y));
  const int g = threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const int first_slot = 8 * g + 2 * (threadIdx.x / 32);

  uint32_t keys[kDim / 16][4];
  load_keys<type, kDim>(page, keys);
  int32_t slot_positions[2];
  float slot_scales[2] = {1.0f, 1.0f};
  for (int odd = 0; odd < 2; ++odd) {
    const int slot = first_slot + odd;
    slot_positions[odd] = reference.gathered < 0
                              ? reference.first + slot
                              : p.plan.gathered[int64_t{reference.gathered} * kPageTokens + slot];
    if constexpr (type == KvType::kI8) slot_scales[odd] = page.k_scale[slot];
  }

  double sums[2] = {};
  const int queries = sequence.row_count * (p.heads / p.layout.kv_heads);
  for (int begin = 0; begin < queries; begin += kQueriesAtOnce) {
    const int count = min(kQueriesAtOnce, queries - begin);
    __syncthreads();
    load_queries<type, kDim>(p, lse, {sequence, begin, count}, reference.shift_row, tiles);
    __syncthreads();
    float part[2] = {};
    for (int first = 0; first < count; first += 8) {
      float c[4] = {};
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        Narrow<type>::multiply(c, keys[step], tiles.pairs[first + g][step][t][0],
                               tiles.pairs[first + g][step][t][1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = first + 2 * t + i % 2;
        const int odd = i / 2;
        float score = c[i] * slot_scales[odd];
        if (p.soft_cap > 0) score = p.soft_cap * tanhf(score / p.soft_cap);
        const bool seen = query < count && (reference.mask >> (first_slot + odd) & 1) &&
                          sees(tiles.positions[query], slot_positions[odd], p.window, reference.sink);
        if (seen) part[odd] += __expf(score - tiles.lse[query]);
      }
    }
    sums[0] += static_cast<double>(part[0]);
    sums[1] += static_cast<double>(part[1]);
  }
  for (int odd = 0; odd < 2; ++odd) {
    for (int lanes = 1; lanes < 4; lanes *= 2) sums[odd] += __shfl_xor_sync(~0u, sums[odd], lanes);
    if (t == 0) {
      atomicAdd(target.mass + int64_t{list.begin + r} * kPageTokens + first_slot + odd, sums[odd]);
    }
  }
}

template <KvType type>
void launch(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.most_references), static_cast<unsigned>(attend.shape.kv_heads),
                  static_cast<unsigned>(target.sequence_count));
  const RowParameters p = row_parameters(attend);
  if constexpr (type != KvType::kF32) {
    if (can_stream(attend.shape)) {
      const auto kernel =
          attend.shape.head_dim == 64 ? mass_matrix_kernel<type, 64> : mass_matrix_kernel<type, 128>;
      kernel<<<grid, kWarps * 32, 0, stream>>>(p, target, attend.lse);
      return;
    }
  }
  mass_kernel<type><<<grid, kWarps * 32, 0, stream>>>(p, target, attend.lse);
}

}  // namespace

void attend_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  if (target.most_references == 0 || target.sequence_count == 0) return;
  switch (attend.shape.type) {
    case KvType::kF32:
      return launch<KvType::kF32>(attend, target, stream);
    case KvType::kF16:
      return launch<KvType::kF16>(attend, target, stream);
    case KvType::kBF16:
      return launch<KvType::kBF16>(attend, target, stream);
    case KvType::kI8:
      return launch<KvType::kI8>(attend, target, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
