// Matrix products through cuBLASLt, loaded when the first one is needed.
//
// The library is large and only a GPU has a use for it, so it is opened at run time (dlopen) instead of
// linked: a program with CUDA in it starts as quickly as one without, and starts where no toolkit is. An
// algorithm is chosen by cuBLASLt's heuristic once a shape and kept. Sums are float32; factors are bf16, or
// float32 rounded to tf32 by the tensor cores. Threads: one at a time. Errors: kUnsupported when the library
// cannot be loaded or has no algorithm for a shape.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/cuda/device_types.h"

namespace rhapsode::kernels::cuda {

// out[row][m] = sum_k weight[m][k] x[row][k]  (+ bias[m]) (+ residual[row][m]); all row-major and contiguous.
struct GemmCall {
  DeviceInput weight;               // [m][k]
  DeviceInput x;                    // [rows][k], of the same element
  DeviceValue out;                  // [rows][m]
  const float* bias = nullptr;      // [m]
  const float* residual = nullptr;  // [rows][m]; needs a float32 out
  int64_t m = 0;
  int64_t k = 0;
  int64_t rows = 0;
};

class Gemm {
 public:
  static Result<std::unique_ptr<Gemm>> make();
  ~Gemm();
  Status run(const GemmCall& call, cudaStream_t stream);

 private:
  Gemm();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rhapsode::kernels::cuda
