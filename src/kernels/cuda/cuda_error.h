// CUDA's error codes as Status values.
#pragma once

#include <cuda_runtime.h>

#include "base/result.h"

namespace rhapsode::kernels::cuda {

// Whether a process can use the GPU no more behind it: every later call fails as well.
inline bool loses_device(cudaError_t code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

// `what` was being done: "copying the plan to the GPU".
inline Status check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  cudaGetLastError();  // a refused allocation must not be reported again by the next launch
  if (loses_device(code)) {
    return make_error(
        ErrorKind::kInternal,
        "{} failed: {} (CUDA error {}); this process has lost the GPU: start it again, and look for "
        "the driver's reason (Xid) in the kernel's log",
        what, cudaGetErrorString(code), static_cast<int>(code));
  }
  const bool memory = code == cudaErrorMemoryAllocation;
  return make_error(memory ? ErrorKind::kNoSpace : ErrorKind::kInternal, "{} failed: {}", what,
                    cudaGetErrorString(code));
}

}  // namespace rhapsode::kernels::cuda
