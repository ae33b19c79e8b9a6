#include "kernels/cuda/attend_mass.h"

#include "kernels/cuda/row_math.cuh"

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

template <KvType type>
void launch(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.most_references), static_cast<unsigned>(attend.shape.kv_heads),
                  static_cast<unsigned>(target.sequence_count));
  mass_kernel<type><<<grid, kWarps * 32, 0, stream>>>(row_parameters(attend), target, attend.lse);
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
