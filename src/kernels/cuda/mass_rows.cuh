// The kernel of attend_mass for every shape and type of page: exact arithmetic, a query and warp at a time.
#pragma once

#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/row_math.cuh"

namespace rhapsode::kernels::cuda {

constexpr int kMassRowWarps = 4;

// One block a page of a run and KV head; its warps take the queries in turn.
template <KvType type>
__global__ void mass_rows_kernel(RowParameters p, MassTarget target, const float* lse) {
  __shared__ float framed[kMassRowWarps][kMostHeadDim];
  __shared__ double sums[kMassRowWarps][kPageTokens];
  const DevicePageRun run = target.runs[blockIdx.x];
  const DeviceList list = target.shared[run.sequence];
  const DeviceList read = p.plan.lists[run.sequence];
  const int r = blockIdx.z;
  if (r >= run.count || read.begin != list.begin || read.count != list.count) return;
  const DeviceReference reference = p.plan.references[run.begin + r];
  const DeviceSequence sequence = target.sequences[run.sequence];
  const DeviceHead page = device_head(p.layout, reference.data, p.layer, static_cast<int>(blockIdx.y));
  const int group = p.heads / p.layout.kv_heads;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  double low_sum = 0;
  double high_sum = 0;
  for (int i = warp; i < sequence.row_count * group; i += kMassRowWarps) {
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
  for (int w = 0; w < kMassRowWarps; ++w) sum += sums[w][threadIdx.x];
  const int64_t part = int64_t{blockIdx.y} * target.query_parts;
  target.sums[(part * target.references + run.begin + r) * kPageTokens + threadIdx.x] += sum;
}

template <KvType type>
void launch_mass_rows(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.run_count), static_cast<unsigned>(attend.shape.kv_heads),
                  kMostRunPages);
  mass_rows_kernel<type><<<grid, kMassRowWarps * 32, 0, stream>>>(row_parameters(attend), target, attend.lse);
}

}  // namespace rhapsode::kernels::cuda
