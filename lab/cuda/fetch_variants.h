// Ways to gather pages that are tried beside the library's (kernels/cuda/page_gather.h), for fetch_lab.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/page_gather.h"

namespace rhapsode::kernels::cuda::lab {

// One thread a block moves pieces through shared memory by bulk copies: host to shared memory, shared memory
// to the device, up to all stages on the way. No register holds data, so one multiprocessor has as many bytes
// under way as it has shared memory.
struct BulkShape {
  int blocks = 1;
  int piece_kib = 8;
  int stages = 24;     // piece_kib * stages <= 224
  bool pairs = false;  // blocks in clusters of two: multiprocessors beside each other
};

// Pages are multiples of 16 bytes; sums are not made.
cudaError_t bulk_gather_pages(const GatherCall& call, const BulkShape& shape, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda::lab
