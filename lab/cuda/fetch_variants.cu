#include "cuda/fetch_variants.h"

namespace rhapsode::kernels::cuda::lab {

namespace {

constexpr int kMostStages = 64;

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void begin_load(uint32_t to, const std::byte* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ inline void wait_for(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

__device__ inline void begin_store(std::byte* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

struct Piece {
  const std::byte* from;
  std::byte* to;
  uint32_t bytes;
};

__device__ inline Piece piece_at(const GatherCall& call, int64_t number, int64_t pieces,
                                 int64_t piece_bytes) {
  const GatherPage page = call.pages[number / pieces];
  const int64_t at = number % pieces * piece_bytes;
  const int64_t left = static_cast<int64_t>(call.page_bytes) - at;
  return {page.from + at, page.to + at, static_cast<uint32_t>(left < piece_bytes ? left : piece_bytes)};
}

__global__ void bulk_kernel(GatherCall call, int64_t pieces, int piece_bytes, int stages) {
  extern __shared__ __align__(128) std::byte room[];
  __shared__ uint64_t barriers[kMostStages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < stages; ++s) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barriers[s])) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const int64_t all = call.count * pieces;
  const int64_t first = blockIdx.x;
  const int64_t step = gridDim.x;
  const int64_t count = first < all ? (all - first + step - 1) / step : 0;
  const auto load = [&](int64_t i) {
    const int s = static_cast<int>(i % stages);
    const Piece piece = piece_at(call, first + i * step, pieces, piece_bytes);
    begin_load(shared_address(room + static_cast<int64_t>(s) * piece_bytes), piece.from, piece.bytes,
               shared_address(&barriers[s]));
  };
  for (int64_t i = 0; i < count && i < stages; ++i) load(i);
  for (int64_t i = 0; i < count; ++i) {
    const int s = static_cast<int>(i % stages);
    const Piece piece = piece_at(call, first + i * step, pieces, piece_bytes);
    wait_for(shared_address(&barriers[s]), static_cast<uint32_t>(i / stages % 2));
    begin_store(piece.to, shared_address(room + static_cast<int64_t>(s) * piece_bytes), piece.bytes);
    // The stage before is free when its store has read it.
    if (i == 0 || i - 1 + stages >= count) continue;
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    load(i - 1 + stages);
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace

cudaError_t bulk_gather_pages(const GatherCall& call, const BulkShape& shape, cudaStream_t stream) {
  if (call.count == 0) return cudaSuccess;
  const int piece_bytes = shape.piece_kib << 10;
  const auto pieces = static_cast<int64_t>((call.page_bytes + static_cast<size_t>(piece_bytes) - 1) /
                                           static_cast<size_t>(piece_bytes));
  const auto shared = static_cast<size_t>(piece_bytes) * static_cast<size_t>(shape.stages);
  cudaError_t code = cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(shared));
  if (code != cudaSuccess) return code;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 2;
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = shape.pairs ? 1 : 0;
  code = cudaLaunchKernelEx(&config, bulk_kernel, call, pieces, piece_bytes, shape.stages);
  return code != cudaSuccess ? code : cudaGetLastError();
}

}  // namespace rhapsode::kernels::cuda::lab
