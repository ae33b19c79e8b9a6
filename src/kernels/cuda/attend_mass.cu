#include "kernels/cuda/attend_mass.h"

#include <algorithm>

#include "kernels/cuda/attend_stream.h"
#include "kernels/cuda/mass_matrix.cuh"
#include "kernels/cuda/mass_rows.cuh"

namespace rhapsode::kernels::cuda {

namespace {

// What fits shared memory twice and registers twice.
constexpr int tile_queries(int head_dim) {
  return head_dim == 64 ? 192 : 128;
}
constexpr int kBlocksOfAProcessor = 2;
constexpr int kLeastQueries = 32;  // of a part: below, turning them costs more than another block gains

__global__ void finish_kernel(double* sums, int64_t count, int parts) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  double sum = 0;
  for (int part = 0; part < parts; ++part) sum += sums[part * count + i];
  sums[i] = sum;
}

template <KvType type>
void launch(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  if constexpr (type != KvType::kF32) {
    if (can_stream(attend.shape) && attend.shape.head_dim == 64) {
      using Config = MassConfig<type, 64, tile_queries(64), kBlocksOfAProcessor>;
      return launch_mass<Config>(attend, target, stream);
    }
    if (can_stream(attend.shape)) {
      using Config = MassConfig<type, 128, tile_queries(128), kBlocksOfAProcessor>;
      return launch_mass<Config>(attend, target, stream);
    }
  }
  launch_mass_rows<type>(attend, target, stream);
}

}  // namespace

int mass_query_parts(const KvShape& shape, int heads, const PlanSizes& sizes) {
  if (!can_stream(shape) || sizes.runs == 0) return 1;
  const int queries = sizes.most_rows * (heads / shape.kv_heads);
  const int at_once = kBlocksOfAProcessor * kProcessors / (sizes.runs * shape.kv_heads);
  return std::clamp((queries + kLeastQueries - 1) / kLeastQueries, 1, std::max(1, at_once));
}

void attend_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  if (target.run_count == 0) return;
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

void finish_mass(const KvShape& shape, const MassTarget& target, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int64_t count = int64_t{target.references} * kPageTokens;
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  finish_kernel<<<blocks, kThreads, 0, stream>>>(target.sums, count, mass_parts(shape, target.query_parts));
}

}  // namespace rhapsode::kernels::cuda
