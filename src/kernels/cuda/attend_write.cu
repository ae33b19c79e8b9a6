#include "kernels/cuda/attend.h"
#include "kernels/cuda/page_access.cuh"

namespace rhapsode::kernels::cuda {

namespace {

__global__ void angles_kernel(RopeOnDevice rope, const int32_t* positions, int with_magnitude, float* table) {
  float* row = table + int64_t{blockIdx.x} * 2 * rope.pairs;
  const double position = positions[blockIdx.x];
  const double magnitude = static_cast<int>(blockIdx.x) < with_magnitude ? rope.magnitude : 1.0;
  for (int pair = threadIdx.x; pair < rope.pairs; pair += blockDim.x) {
    double sine = 0;
    double cosine = 0;
    sincos(position * rope.frequencies[pair], &sine, &cosine);
    row[pair] = static_cast<float>(cosine * magnitude);
    row[rope.pairs + pair] = static_cast<float>(sine * magnitude);
  }
}

struct WriteParameters {
  PageLayout layout;
  const DeviceWrite* writes;
  const float* row_angles;
  const float* write_angles;
  const float* q;
  float* turned;
  const float* k;
  const float* v;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;
  int heads;
  int layer;
  int pairs;
  bool adjacent;
};

__device__ void turn_head(const WriteParameters& p, const float* from, const float* cosines, float* to) {
  const int d = p.layout.head_dim;
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    if (i < p.pairs) {
      const int a = p.adjacent ? 2 * i : i;
      const int b = p.adjacent ? 2 * i + 1 : i + p.pairs;
      const Pair turned = turn({from[a], from[b]}, cosines[i], cosines[p.pairs + i]);
      to[a] = turned.a;
      to[b] = turned.b;
    } else if (i >= 2 * p.pairs) {
      to[i] = from[i];
    }
  }
}

__device__ float block_max(float x, float* parts) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) x = fmaxf(x, parts[warp]);
  return x;
}

// One block a row and head: first the query heads, then the KV heads. Keys are turned in shared memory, since
// a pair's halves lie apart.
template <KvType type>
__global__ void write_kernel(WriteParameters p) {
  using Element = PageElement<type>;
  using T = typename Element::Type;
  __shared__ float key[256];
  __shared__ float parts[8];
  const int d = p.layout.head_dim;
  const int64_t row = blockIdx.x;
  if (static_cast<int>(blockIdx.y) < p.heads) {
    const int64_t query = blockIdx.y;
    turn_head(p, p.q + row * p.q_stride + query * d, p.row_angles + row * 2 * p.pairs,
              p.turned + (row * p.heads + query) * d);
    return;
  }
  const DeviceWrite write = p.writes[row];
  if (write.data == nullptr) return;
  const int head = static_cast<int>(blockIdx.y) - p.heads;
  const float* v = p.v + row * p.v_stride + int64_t{head} * d;
  turn_head(p, p.k + row * p.k_stride + int64_t{head} * d, p.write_angles + row * 2 * p.pairs, key);
  __syncthreads();
  const DeviceHead out = device_head(p.layout, write.data, p.layer, head);
  float k_inverse = 0;
  float v_inverse = 0;
  if constexpr (type == KvType::kI8) {
    float k_most = 0;
    float v_most = 0;
    for (int i = threadIdx.x; i < d; i += blockDim.x) {
      k_most = fmaxf(k_most, fabsf(key[i]));
      v_most = fmaxf(v_most, fabsf(v[i]));
    }
    const float k_scale = block_max(k_most, parts) / 127.0f;
    const float v_scale = block_max(v_most, parts) / 127.0f;
    if (threadIdx.x == 0) {
      out.k_scale[write.slot] = k_scale;
      out.v_scale[write.slot] = v_scale;
    }
    k_inverse = k_scale > 0 ? 1.0f / k_scale : 0.0f;
    v_inverse = v_scale > 0 ? 1.0f / v_scale : 0.0f;
  }
  for (int i = threadIdx.x; i < d; i += blockDim.x) {
    reinterpret_cast<T*>(out.k)[key_index(d, write.slot, i)] = Element::store(key[i], k_inverse);
    reinterpret_cast<T*>(out.v)[write.slot * d + i] = Element::store(v[i], v_inverse);
  }
}

}  // namespace

void make_angles(const RopeOnDevice& rope, const int32_t* positions, int count, int with_magnitude,
                 float* table, cudaStream_t stream) {
  if (count == 0 || rope.pairs == 0) return;
  const int threads = rope.pairs > 32 ? 64 : 32;
  angles_kernel<<<count, threads, 0, stream>>>(rope, positions, with_magnitude, table);
}

void turn_and_write(const DeviceAttend& attend, cudaStream_t stream) {
  if (attend.plan.rows == 0) return;
  WriteParameters p{};
  p.layout = page_layout(attend.shape);
  p.writes = attend.plan.writes;
  p.row_angles = attend.row_angles;
  p.write_angles = attend.write_angles;
  p.q = attend.q;
  p.turned = attend.turned;
  p.k = attend.k;
  p.v = attend.v;
  p.q_stride = attend.q_stride;
  p.k_stride = attend.k_stride;
  p.v_stride = attend.v_stride;
  p.heads = attend.heads;
  p.layer = attend.layer;
  p.pairs = attend.pairs;
  p.adjacent = attend.adjacent;
  const dim3 grid(static_cast<unsigned>(attend.plan.rows),
                  static_cast<unsigned>(attend.heads + attend.shape.kv_heads));
  const int threads = attend.shape.head_dim <= 64 ? 64 : 128;
  switch (attend.shape.type) {
    case KvType::kF32:
      return write_kernel<KvType::kF32><<<grid, threads, 0, stream>>>(p);
    case KvType::kF16:
      return write_kernel<KvType::kF16><<<grid, threads, 0, stream>>>(p);
    case KvType::kBF16:
      return write_kernel<KvType::kBF16><<<grid, threads, 0, stream>>>(p);
    case KvType::kI8:
      return write_kernel<KvType::kI8><<<grid, threads, 0, stream>>>(p);
  }
}

}  // namespace rhapsode::kernels::cuda
