// Scattered pages from pinned memory of the host, or from the device itself, into pages of the device, by a
// kernel that reads them where they lie: no copy a page, so small pages cross as fast as large ones.
//
// Every page has the same number of bytes, a multiple of 16, and both ends lie on 16 bytes. A copy from
// the host takes few threads: what they wait for is the bus, and the rest of the GPU computes meanwhile. With
// `sums` the bytes that arrived are summed on the way (kernels/page_sum.h). Queued on the stream, nothing is
// allocated. Cost: docs/results.md.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace rhapsode::kernels::cuda {

inline constexpr size_t kGatherUnit = 16;  // bytes a thread moves at a time
inline bool in_units(const void* to, const void* from, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % kGatherUnit == 0;
}

struct GatherPage {
  const std::byte* from = nullptr;  // pinned, or on the device
  std::byte* to = nullptr;          // device
};

struct GatherCall {
  const GatherPage* pages = nullptr;  // [count], readable by the device
  int64_t count = 0;
  size_t page_bytes = 0;
  uint64_t* sums = nullptr;  // [count] on the device, zeroed; may be null
};

// How many threads wait for the bus: as few multiprocessors as keep it busy. A product that has just enough
// tiles for all of them takes a round more for each one that is taken from it.
struct GatherShape {
  int blocks = 2;
  int threads = 512;
  bool deep = true;  // each asks for 256 bytes at a time instead of 128; 512 threads at most
};

cudaError_t gather_pages(const GatherCall& call, const GatherShape& shape, cudaStream_t stream);

// Adds the sum of what lies on the device at `page`, on 16 bytes, a multiple of as many, to `*sum`.
cudaError_t sum_page(const std::byte* page, size_t bytes, uint64_t* sum, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
