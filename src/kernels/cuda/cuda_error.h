// CUDA's error codes as Status values.
#pragma once

#include <cuda_runtime.h>

#include "base/result.h"

namespace rhapsode::kernels::cuda {

// `what` was being done: "copying the plan to the GPU".
inline Status check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // a refused allocation must not be reported again by the next launch
  const bool memory = code == cudaErrorMemoryAllocation;
  return make_error(memory ? ErrorKind::kNoSpace : ErrorKind::kInternal, "{} failed: {}", what,
                    cudaGetErrorString(code));
}

}  // namespace rhapsode::kernels::cuda
