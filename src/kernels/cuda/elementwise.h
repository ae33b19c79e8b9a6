// The small operations between matmuls, one kernel each. Values are [rows][features], contiguous unless a row
// stride (in elements) is given.
//
// Every function enqueues on `stream` and returns at once; a failed launch is found by cudaGetLastError().
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_types.h"

namespace rhapsode::kernels::cuda {

struct RowShape {
  int rows = 0;
  int64_t features = 0;
};

// out[r] = in[index[r]]: rows of a table by token, or the output rows of a value.
void gather_rows(const RowShape& shape, DeviceInput in, const int32_t* index, DeviceValue out,
                 cudaStream_t stream);
// Over groups of `width` features; gain has `width` values.
struct NormCall {
  int64_t width = 0;
  const float* in = nullptr;
  int64_t in_stride = 0;
  const float* gain = nullptr;
  float epsilon = 0.0f;
};
void rms_norm(const RowShape& shape, const NormCall& call, DeviceValue out, cudaStream_t stream);
// activation(gate) * up, the activation being GELU (its tanh form) or SiLU; both of one element and stride.
struct GateCall {
  DeviceInput gate;
  DeviceInput up;
  int64_t stride = 0;
  bool gelu = false;
};
void gate(const RowShape& shape, const GateCall& call, DeviceValue out, cudaStream_t stream);
void add(const RowShape& shape, const float* a, const float* b, float* out, cudaStream_t stream);
void add_bias(const RowShape& shape, const float* in, const float* bias, float* out, cudaStream_t stream);
void scale(const RowShape& shape, const float* in, float factor, float* out, cudaStream_t stream);
void soft_cap(const RowShape& shape, const float* in, float cap, float* out, cudaStream_t stream);
// out[r] = log of softmax(in[r]) at targets[r].
void log_softmax_at(const RowShape& shape, const float* in, const int32_t* targets, float* out,
                    cudaStream_t stream);
// out[p] = in[begins[p]] + ... + in[begins[p + 1] - 1], for shape.rows pools.
void pool_rows(const RowShape& shape, const float* in, const int32_t* begins, float* out,
               cudaStream_t stream);
void to_bf16(const RowShape& shape, const float* in, void* out, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
