#include "kernels/cuda/page_gather.h"

#include "kernels/page_sum.h"

namespace rhapsode::kernels::cuda {

namespace {

// What a warp asks for before it waits.
constexpr size_t piece_bytes(int loads) {
  return static_cast<size_t>(loads) * 32 * 16;
}

__device__ inline uint4 load_from_host(const uint4* address) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(address)
               : "memory");
  return x;
}

__device__ inline uint64_t two_words(const uint4& x, int64_t unit) {
  const uint64_t low = uint64_t{x.y} << 32 | x.x;
  const uint64_t high = uint64_t{x.w} << 32 | x.z;
  return word_sum(low, static_cast<uint64_t>(2 * unit)) + word_sum(high, static_cast<uint64_t>(2 * unit + 1));
}

__device__ inline void add_to(uint64_t* total, uint64_t sum, int lane) {
  for (int reach = 16; reach > 0; reach /= 2) sum += __shfl_xor_sync(~0u, sum, reach);
  if (lane == 0) atomicAdd(reinterpret_cast<unsigned long long*>(total), sum);
}

__global__ void sum_kernel(const uint4* page, int64_t units, uint64_t* total) {
  uint64_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t unit = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; unit < units; unit += stride) {
    sum += two_words(page[unit], unit);
  }
  add_to(total, sum, static_cast<int>(threadIdx.x) % 32);
}

// Warps take pieces in turn; the last piece of a page may be shorter.
template <int kLoads, bool kSums>
__global__ void gather_kernel(GatherCall call, int64_t pieces) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warps = int64_t{gridDim.x} * (blockDim.x / 32);
  const int64_t units = static_cast<int64_t>(call.page_bytes) / 16;
  for (int64_t piece = int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
       piece < call.count * pieces; piece += warps) {
    const int64_t page = piece / pieces;
    const int64_t first = piece % pieces * (kLoads * 32) + lane;
    const auto* from = reinterpret_cast<const uint4*>(call.pages[page].from);
    auto* to = reinterpret_cast<uint4*>(call.pages[page].to);
    uint4 data[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * 32 < units) data[i] = load_from_host(from + first + i * 32);
    }
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i * 32 >= units) continue;
      to[first + i * 32] = data[i];
      if constexpr (kSums) sum += two_words(data[i], first + i * 32);
    }
    if constexpr (kSums) {
      add_to(call.sums + page, sum, lane);
    }
  }
}

template <int kLoads>
void launch(const GatherCall& call, const GatherShape& shape, cudaStream_t stream) {
  const auto pieces = static_cast<int64_t>((call.page_bytes + piece_bytes(kLoads) - 1) / piece_bytes(kLoads));
  const auto blocks = static_cast<unsigned>(shape.blocks);
  const auto threads = static_cast<unsigned>(shape.threads);
  if (call.sums != nullptr) {
    gather_kernel<kLoads, true><<<blocks, threads, 0, stream>>>(call, pieces);
  } else {
    gather_kernel<kLoads, false><<<blocks, threads, 0, stream>>>(call, pieces);
  }
}

}  // namespace

cudaError_t gather_pages(const GatherCall& call, const GatherShape& shape, cudaStream_t stream) {
  if (call.count == 0) return cudaSuccess;
  if (shape.deep) {
    launch<16>(call, shape, stream);
  } else {
    launch<8>(call, shape, stream);
  }
  return cudaGetLastError();
}

cudaError_t sum_page(const std::byte* page, size_t bytes, uint64_t* sum, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  constexpr size_t kBytesOfABlock = size_t{kThreads} * 16 * 8;
  if (bytes == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((bytes + kBytesOfABlock - 1) / kBytesOfABlock);
  sum_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(page),
                                              static_cast<int64_t>(bytes / 16), sum);
  return cudaGetLastError();
}

}  // namespace rhapsode::kernels::cuda
