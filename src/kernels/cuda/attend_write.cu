#include "kernels/cuda/attend.h"
#include "kernels/cuda/chained.cuh"
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
  int rows;
  int heads;
  int layer;
  int pairs;
  bool adjacent;
};

constexpr int kRows = kKeyGroup;    // of a block: as many slots as lie side by side in K
constexpr int kThreadsOfARow = 16;  // half a warp
constexpr int kWriteThreads = kRows * kThreadsOfARow;
constexpr int kMostHeadDim = 256;

// By kThreadsOfARow threads, of which this is number t.
__device__ void turn_head(const WriteParameters& p, const float* from, const float* cosines, float* to,
                          int t) {
  for (int i = t; i < p.pairs; i += kThreadsOfARow) {
    const int a = p.adjacent ? 2 * i : i;
    const int b = p.adjacent ? 2 * i + 1 : i + p.pairs;
    const Pair turned = turn({from[a], from[b]}, cosines[i], cosines[p.pairs + i]);
    to[a] = turned.a;
    to[b] = turned.b;
  }
  for (int i = 2 * p.pairs + t; i < p.layout.head_dim; i += kThreadsOfARow) to[i] = from[i];
}

// The scale of a vector in int8, by the threads of a row.
__device__ float scale_of(const float* x, int d, int t) {
  float most = 0;
  for (int i = t; i < d; i += kThreadsOfARow) most = fmaxf(most, fabsf(x[i]));
  for (int lanes = kThreadsOfARow / 2; lanes > 0; lanes /= 2) {
    most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
  }
  return most / 127.0f;
}

// One block sixteen rows and a head: first the query heads, then the KV heads. Keys are turned in shared
// memory and go from there dimension by dimension, sixteen rows side by side: mostly rows that follow one
// another in a page, whose elements then are 32 bytes in a piece.
template <KvType type>
__global__ void __launch_bounds__(kWriteThreads) write_kernel(WriteParameters p) {
  using Element = PageElement<type>;
  using T = typename Element::Type;
  __shared__ float keys[kRows][kMostHeadDim + 1];
  __shared__ float inverses[kRows];  // of the keys' scales
  let_next_begin();
  const int d = p.layout.head_dim;
  const int r = threadIdx.x / kThreadsOfARow;
  const int t = threadIdx.x % kThreadsOfARow;
  const int64_t begin = int64_t{blockIdx.x} * kRows;
  const int64_t row = begin + r;
  if (static_cast<int>(blockIdx.y) < p.heads) {
    const int64_t query = blockIdx.y;
    if (row >= p.rows) return;
    turn_head(p, p.q + row * p.q_stride + query * d, p.row_angles + row * 2 * p.pairs,
              p.turned + (row * p.heads + query) * d, t);
    return;
  }
  const int head = static_cast<int>(blockIdx.y) - p.heads;
  const DeviceWrite write = row < p.rows ? p.writes[row] : DeviceWrite{};
  const float* v = p.v + row * p.v_stride + int64_t{head} * d;
  if (write.data) {
    turn_head(p, p.k + row * p.k_stride + int64_t{head} * d, p.write_angles + row * 2 * p.pairs, keys[r], t);
  }
  __syncthreads();
  float v_inverse = 0;
  if constexpr (type == KvType::kI8) {
    const int width = write.data ? d : 0;  // a row that is not kept takes part in the exchange only
    const float k_scale = scale_of(keys[r], width, t);
    const float v_scale = scale_of(v, width, t);
    if (write.data && t == 0) {
      const DeviceHead out = device_head(p.layout, write.data, p.layer, head);
      out.k_scale[write.slot] = k_scale;
      out.v_scale[write.slot] = v_scale;
    }
    if (t == 0) inverses[r] = k_scale > 0 ? 1.0f / k_scale : 0.0f;
    v_inverse = v_scale > 0 ? 1.0f / v_scale : 0.0f;
    __syncthreads();
  }
  if (write.data) {
    T* to = reinterpret_cast<T*>(device_head(p.layout, write.data, p.layer, head).v) + write.slot * d;
    for (int i = t; i < d; i += kThreadsOfARow) to[i] = Element::store(v[i], v_inverse);
  }
  const int slot_row = threadIdx.x % kRows;  // here neighbouring threads have neighbouring rows
  if (begin + slot_row >= p.rows) return;
  const DeviceWrite key_write = p.writes[begin + slot_row];
  if (key_write.data == nullptr) return;
  T* to = reinterpret_cast<T*>(device_head(p.layout, key_write.data, p.layer, head).k);
  const float inverse = type == KvType::kI8 ? inverses[slot_row] : 0.0f;
  for (int i = threadIdx.x / kRows; i < d; i += kWriteThreads / kRows) {
    to[key_index(d, key_write.slot, i)] = Element::store(keys[slot_row][i], inverse);
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
  p.rows = attend.plan.rows;
  p.heads = attend.turned ? attend.heads : 0;
  p.layer = attend.layer;
  p.pairs = attend.pairs;
  p.adjacent = attend.adjacent;
  const dim3 grid(static_cast<unsigned>((attend.plan.rows + kRows - 1) / kRows),
                  static_cast<unsigned>(p.heads + attend.shape.kv_heads));
  switch (attend.shape.type) {
    case KvType::kF32:
      return write_kernel<KvType::kF32><<<grid, kWriteThreads, 0, stream>>>(p);
    case KvType::kF16:
      return write_kernel<KvType::kF16><<<grid, kWriteThreads, 0, stream>>>(p);
    case KvType::kBF16:
      return write_kernel<KvType::kBF16><<<grid, kWriteThreads, 0, stream>>>(p);
    case KvType::kI8:
      return write_kernel<KvType::kI8><<<grid, kWriteThreads, 0, stream>>>(p);
  }
}

}  // namespace rhapsode::kernels::cuda
