// Whether blocks have the same bytes on both sides of the bus: sums of a sample of them.
//
// Of every sixteen blocks one is summed by the host and by the GPU, from another one on each time
// (docs/decisions/0021-pages-over-the-bus.md). Threads: one at a time; sum_host() may run beside what the
// stream does. Cost: 20 GB/s of the host's; the GPU's is hidden.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

class TripSums {
 public:
  // Enqueues the GPU's sums behind the copies. The copies' bytes stay until compare().
  Status start(std::span<const PageMemory::CopyIn> copies, cudaStream_t stream);
  void sum_host();
  // Behind sum_host() and the end of what start() enqueued: kInternal where they differ.
  Status compare() const;

 private:
  void choose(std::span<const PageMemory::CopyIn> copies);

  std::vector<PageMemory::CopyIn> chosen_;
  std::vector<uint64_t> sent_;  // [chosen]
  PinnedBuffer arrived_;        // likewise
  DeviceBuffer sums_;           // likewise
  size_t next_ = 0;
};

}  // namespace rhapsode::kernels::cuda
