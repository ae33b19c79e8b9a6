#include <cuda_bf16.h>

#include "kernels/cuda/elementwise.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__device__ float load(const float* p, int64_t i) {
  return p[i];
}
__device__ float load(const __nv_bfloat16* p, int64_t i) {
  return __bfloat162float(p[i]);
}
__device__ void store(float* p, int64_t i, float x) {
  p[i] = x;
}
__device__ void store(__nv_bfloat16* p, int64_t i, float x) {
  p[i] = __float2bfloat16(x);
}

// Elements 4i to 4i + 3.
__device__ void store_four(float* p, int64_t i, const float4& x) {
  reinterpret_cast<float4*>(p)[i] = x;
}
__device__ void store_four(__nv_bfloat16* p, int64_t i, const float4& x) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(x.x, x.y), __floats2bfloat162_rn(x.z, x.w)};
  reinterpret_cast<uint2*>(p)[i] = reinterpret_cast<const uint2&>(pairs);
}

bool starts_piece(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// Calls f with a null pointer of the element's type.
template <typename F>
void with_type(Element element, F&& f) {
  if (element == Element::kF32) {
    f(static_cast<float*>(nullptr));
  } else {
    f(static_cast<__nv_bfloat16*>(nullptr));
  }
}

int blocks_for(int64_t elements) {
  constexpr int64_t kMost = 132 * 16;
  const int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < kMost ? blocks : kMost);
}

// out[i] = f(i) for every element.
template <typename Out, typename F>
__global__ void map_kernel(int64_t elements, Out* out, F f) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += step) store(out, i, f(i));
}

template <typename Out, typename F>
void map(const RowShape& shape, Out* out, cudaStream_t stream, F f) {
  const int64_t elements = shape.rows * shape.features;
  if (elements > 0) map_kernel<<<blocks_for(elements), kThreads, 0, stream>>>(elements, out, f);
}

template <typename In, typename Out>
__global__ void gather_kernel(int64_t features, const In* in, const int32_t* index, Out* out) {
  const In* from = in + int64_t{index[blockIdx.x]} * features;
  Out* to = out + int64_t{blockIdx.x} * features;
  for (int64_t i = threadIdx.x; i < features; i += kThreads) store(to, i, load(from, i));
}

__device__ float warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// One block a group of `width` values. Sums of squares in float32, as every reader of these models does.
template <typename Out>
__global__ void rms_norm_kernel(NormCall call, int groups_of_row, Out* out) {
  __shared__ float parts[kThreads / 32];
  const int width = static_cast<int>(call.width);
  const int64_t row = blockIdx.x / groups_of_row;
  const float* x = call.in + row * call.in_stride + int64_t{blockIdx.x % groups_of_row} * width;
  Out* y = out + int64_t{blockIdx.x} * width;
  float sum = 0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += x[i] * x[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += parts[warp];
  const float factor = rsqrtf(total / width + call.epsilon);
  for (int i = threadIdx.x; i < width; i += blockDim.x) store(y, i, x[i] * factor * call.gain[i]);
}

// The same where a warp holds a whole row in pieces of four: it is read once, and nobody waits for anybody.
constexpr int kRowsOfABlock = 4;
template <int kPieces, typename Out>  // of a lane
__global__ void __launch_bounds__(kRowsOfABlock * 32)
    rms_norm_held_kernel(NormCall call, int64_t groups, int groups_of_row, Out* out) {
  const int64_t group = int64_t{blockIdx.x} * kRowsOfABlock + threadIdx.x / 32;
  if (group >= groups) return;
  const int lane = threadIdx.x % 32;
  const int pieces = static_cast<int>(call.width / 4);
  const auto* x = reinterpret_cast<const float4*>(call.in + group / groups_of_row * call.in_stride) +
                  group % groups_of_row * pieces;
  const auto* gain = reinterpret_cast<const float4*>(call.gain);
  float4 held[kPieces];
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
    const int i = n * 32 + lane;
    held[n] = i < pieces ? x[i] : float4{};
  }
#pragma unroll
  for (const float4& v : held) sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  const float factor = rsqrtf(warp_sum(sum) / static_cast<float>(call.width) + call.epsilon);
#pragma unroll
  for (int n = 0; n < kPieces; ++n) {
    const int i = n * 32 + lane;
    if (i >= pieces) continue;
    const float4 v = held[n];
    const float4 g = gain[i];
    store_four(out, group * pieces + i,
               {v.x * factor * g.x, v.y * factor * g.y, v.z * factor * g.z, v.w * factor * g.w});
  }
}

template <int kPieces, typename Out>
void launch_held_norm(const NormCall& call, int64_t groups, int groups_of_row, Out* out,
                      cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((groups + kRowsOfABlock - 1) / kRowsOfABlock);
  rms_norm_held_kernel<kPieces><<<blocks, kRowsOfABlock * 32, 0, stream>>>(call, groups, groups_of_row, out);
}

__device__ float warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}

// One block a row: the highest value, then the sum of exponentials below it.
__global__ void log_softmax_at_kernel(int64_t features, const float* in, const int32_t* targets, float* out) {
  __shared__ float parts[kThreads / 32];
  const float* row = in + int64_t{blockIdx.x} * features;
  float highest = -INFINITY;
  for (int64_t i = threadIdx.x; i < features; i += kThreads) highest = fmaxf(highest, row[i]);
  highest = warp_max(highest);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = highest;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) highest = fmaxf(highest, parts[warp]);
  __syncthreads();
  float sum = 0;
  for (int64_t i = threadIdx.x; i < features; i += kThreads) sum += expf(row[i] - highest);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) total += parts[warp];
  out[blockIdx.x] = row[targets[blockIdx.x]] - highest - logf(total);
}

__global__ void pool_kernel(int64_t features, const float* in, const int32_t* begins, float* out) {
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (i >= features) return;
  float sum = 0;
  for (int row = begins[blockIdx.x]; row < begins[blockIdx.x + 1]; ++row) sum += in[row * features + i];
  out[blockIdx.x * features + i] = sum;
}

__device__ float activate(bool gelu, float x) {
  if (!gelu) return x / (1.0f + __expf(-x));
  constexpr float kSqrt2OverPi = 0.79788456080286535588f;
  return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * x * (1.0f + 0.044715f * x * x)));
}

// Two features a thread: 16-bit values then come in whole words.
template <typename In, typename Out>
__global__ void gate_kernel(GateCall call, int64_t features, Out* out) {
  const int64_t row = blockIdx.x;
  const In* gate = static_cast<const In*>(call.gate.data) + row * call.stride;
  const In* up = static_cast<const In*>(call.up.data) + row * call.stride;
  const int64_t begin = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * 2;
#pragma unroll
  for (int64_t i = begin; i < begin + 2; ++i) {
    if (i < features) store(out, row * features + i, activate(call.gelu, load(gate, i)) * load(up, i));
  }
}

// Eight features a thread, where everything is bf16 in whole pieces of 16 bytes.
__global__ void gate_pieces_kernel(GateCall call, int64_t pieces_of_row, int64_t pieces, __nv_bfloat16* out) {
  const int64_t piece = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (piece >= pieces) return;
  const int64_t row = piece / pieces_of_row;
  const int64_t at = row * call.stride / 8 + piece % pieces_of_row;
  const uint4 gates = static_cast<const uint4*>(call.gate.data)[at];
  const uint4 ups = static_cast<const uint4*>(call.up.data)[at];
  const auto* gate = reinterpret_cast<const __nv_bfloat162*>(&gates);
  const auto* up = reinterpret_cast<const __nv_bfloat162*>(&ups);
  __nv_bfloat162 results[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 g = __bfloat1622float2(gate[i]);
    const float2 u = __bfloat1622float2(up[i]);
    results[i] = __floats2bfloat162_rn(activate(call.gelu, g.x) * u.x, activate(call.gelu, g.y) * u.y);
  }
  reinterpret_cast<uint4*>(out)[piece] = reinterpret_cast<const uint4&>(results);
}

struct Add {
  const float* a;
  const float* b;
  __device__ float operator()(int64_t i) const { return a[i] + b[i]; }
};
struct AddBias {
  const float* in;
  const float* bias;
  int64_t features;
  __device__ float operator()(int64_t i) const { return in[i] + bias[i % features]; }
};
struct Scale {
  const float* in;
  float factor;
  __device__ float operator()(int64_t i) const { return in[i] * factor; }
};
struct SoftCap {
  const float* in;
  float cap;
  __device__ float operator()(int64_t i) const { return cap * tanhf(in[i] / cap); }
};

}  // namespace

void gather_rows(const RowShape& shape, DeviceInput in, const int32_t* index, DeviceValue out,
                 cudaStream_t stream) {
  if (shape.rows == 0) return;
  with_type(in.element, [&](auto* in_type) {
    with_type(out.element, [&](auto* out_type) {
      using In = std::remove_pointer_t<decltype(in_type)>;
      using Out = std::remove_pointer_t<decltype(out_type)>;
      gather_kernel<<<shape.rows, kThreads, 0, stream>>>(shape.features, static_cast<const In*>(in.data),
                                                         index, static_cast<Out*>(out.data));
    });
  });
}

void rms_norm(const RowShape& shape, const NormCall& call, DeviceValue out, cudaStream_t stream) {
  const int64_t groups_of_row = shape.features / call.width;
  const int64_t groups = shape.rows * groups_of_row;
  if (groups == 0) return;
  constexpr int kMostHeld = 16;
  const bool in_pieces = call.width % 4 == 0 && call.in_stride % 4 == 0 && call.width <= 128 * kMostHeld &&
                         starts_piece(call.in, 16) && starts_piece(call.gain, 16) &&
                         starts_piece(out.data, 16);
  if (in_pieces) {
    with_type(out.element, [&](auto* type) {
      auto* to = static_cast<std::remove_pointer_t<decltype(type)>*>(out.data);
      const int of_row = static_cast<int>(groups_of_row);
      if (call.width <= 128) return launch_held_norm<1>(call, groups, of_row, to, stream);
      if (call.width <= 1024) return launch_held_norm<8>(call, groups, of_row, to, stream);
      launch_held_norm<kMostHeld>(call, groups, of_row, to, stream);
    });
    return;
  }
  const int threads = call.width >= 512 ? kThreads : (call.width > 128 ? 128 : 32);
  with_type(out.element, [&](auto* type) {
    using Out = std::remove_pointer_t<decltype(type)>;
    rms_norm_kernel<<<static_cast<unsigned>(groups), threads, 0, stream>>>(
        call, static_cast<int>(groups_of_row), static_cast<Out*>(out.data));
  });
}

void gate(const RowShape& shape, const GateCall& call, DeviceValue out, cudaStream_t stream) {
  if (shape.rows == 0) return;
  const bool bf16 = call.gate.element == Element::kBF16 && call.up.element == Element::kBF16 &&
                    out.element == Element::kBF16;
  if (bf16 && shape.features % 8 == 0 && call.stride % 8 == 0 && starts_piece(call.gate.data, 16) &&
      starts_piece(call.up.data, 16) && starts_piece(out.data, 16)) {
    const int64_t pieces = shape.rows * shape.features / 8;
    gate_pieces_kernel<<<static_cast<unsigned>((pieces + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
        call, shape.features / 8, pieces, static_cast<__nv_bfloat16*>(out.data));
    return;
  }
  const dim3 grid(static_cast<unsigned>(shape.rows),
                  static_cast<unsigned>((shape.features + 2 * kThreads - 1) / (2 * kThreads)));
  with_type(call.gate.element, [&](auto* in_type) {
    with_type(out.element, [&](auto* out_type) {
      using In = std::remove_pointer_t<decltype(in_type)>;
      using Out = std::remove_pointer_t<decltype(out_type)>;
      gate_kernel<In><<<grid, kThreads, 0, stream>>>(call, shape.features, static_cast<Out*>(out.data));
    });
  });
}

void add(const RowShape& shape, const float* a, const float* b, float* out, cudaStream_t stream) {
  map(shape, out, stream, Add{a, b});
}

void add_bias(const RowShape& shape, const float* in, const float* bias, float* out, cudaStream_t stream) {
  map(shape, out, stream, AddBias{in, bias, shape.features});
}

void scale(const RowShape& shape, const float* in, float factor, float* out, cudaStream_t stream) {
  map(shape, out, stream, Scale{in, factor});
}

void soft_cap(const RowShape& shape, const float* in, float cap, float* out, cudaStream_t stream) {
  map(shape, out, stream, SoftCap{in, cap});
}

void log_softmax_at(const RowShape& shape, const float* in, const int32_t* targets, float* out,
                    cudaStream_t stream) {
  if (shape.rows == 0) return;
  log_softmax_at_kernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(shape.features, in,
                                                                                    targets, out);
}

void pool_rows(const RowShape& shape, const float* in, const int32_t* begins, float* out,
               cudaStream_t stream) {
  if (shape.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(shape.rows),
                  static_cast<unsigned>((shape.features + kThreads - 1) / kThreads));
  pool_kernel<<<grid, kThreads, 0, stream>>>(shape.features, in, begins, out);
}

void to_bf16(const RowShape& shape, const float* in, void* out, cudaStream_t stream) {
  map(shape, static_cast<__nv_bfloat16*>(out), stream, Scale{in, 1.0f});
}

}  // namespace rhapsode::kernels::cuda
