// Many pieces from pinned memory of the host to the device, handed to the driver in one call.
//
// A piece costs the copy engines less than a microsecond then, where a copy of its own costs 2.7, and they
// take nothing from passes that run meanwhile (docs/results.md, "Fetching"). Toolkits before CUDA 13, and
// drivers that do not know such calls, copy one by one. Queued on the stream, which is not the default one.
// Threads: any.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "base/result.h"
#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

// `bytes` of every copy, from `offset` of it on.
Status copy_batch(std::span<const PageMemory::CopyIn> copies, size_t offset, size_t bytes,
                  cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
