// Kernels that begin before the one in front of them has ended (programmatic dependent launch): they look at
// the plan meanwhile, which no kernel of a pass writes, and may bring pages to the L2, reading none.
#pragma once

#include <cuda_runtime.h>

namespace rhapsode::kernels::cuda {

// Lets the next kernel of the stream begin as soon as every block of this one has come here or ended.
__device__ __forceinline__ void let_next_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Until everything in front of this kernel has ended, its writes seen; at once where it was not launched
// early.
__device__ __forceinline__ void wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// How a kernel is launched that may begin early.
inline cudaLaunchAttribute early_launch() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

}  // namespace rhapsode::kernels::cuda
