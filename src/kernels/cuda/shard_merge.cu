#include <cuda_bf16.h>

#include "kernels/cuda/shard_merge.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// One thread an element of the output; the sums of a head are made by each of its threads.
__global__ void merge_kernel(ShardMerge m, int64_t elements) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= elements) return;
  const int64_t head = at / m.head_dim;
  float value = m.parts[at];
  float lse = m.parts[elements + head];
  for (int shard = 1; shard < m.shards; ++shard) {
    const float* part = m.parts + shard * m.part_floats;
    const float other = part[elements + head];
    if (other == -INFINITY) continue;
    if (lse == -INFINITY) {
      lse = other;
      value = part[at];
      continue;
    }
    const float max = fmaxf(lse, other);
    const float keep = expf(lse - max);
    const float add = expf(other - max);
    const float sum = keep + add;
    value = value * (keep / sum) + part[at] * (add / sum);
    lse = max + logf(sum);
  }
  if (m.out.element == Element::kF32) {
    static_cast<float*>(m.out.data)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(m.out.data)[at] = __float2bfloat16(value);
  }
  if (at % m.head_dim == 0) m.lse[head] = lse;
}

}  // namespace

void merge_shards(const ShardMerge& merge, cudaStream_t stream) {
  const int64_t elements = int64_t{merge.rows} * merge.heads * merge.head_dim;
  if (elements == 0) return;
  const auto blocks = static_cast<unsigned>((elements + kThreads - 1) / kThreads);
  merge_kernel<<<blocks, kThreads, 0, stream>>>(merge, elements);
}

}  // namespace rhapsode::kernels::cuda
