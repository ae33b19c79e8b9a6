// Products of a warpgroup (wgmma, sm_90a): 64 x 16 in registers times 16 x N in shared memory, N 64 or 128.
//
// A's and C's fragments are those of mma.m16n8k16, warp w of the group having rows 16w to 16w + 15. B is
// given by a description of where it lies; it is read asynchronously, so shared memory written by ordinary
// stores or copies must be published first, and registers of a product must not be touched before it has been
// waited for. Here N is always what lies side by side ("MN-major").
#pragma once

#include "kernels/cuda/fragments.cuh"

namespace rhapsode::kernels::cuda {

namespace detail {
__device__ constexpr uint64_t matrix_field(uint32_t bytes) {
  return (bytes & 0x3ffff) >> 4;
}
}  // namespace detail

// Rows of 128 bytes, 64 elements of N, one k each; piece i of row k stands at i ^ (k % 8) (the 128-byte
// swizzle; the matrix begins at a multiple of 1,024). `n_step` bytes further are the next 64 of N.
__device__ __forceinline__ uint64_t describe_swizzled(uint32_t address, uint32_t n_step) {
  using detail::matrix_field;
  return matrix_field(address) | matrix_field(n_step) << 16 | matrix_field(1024) << 32 | uint64_t{1} << 62;
}

// The same matrix `bytes` further on.
__device__ __forceinline__ uint64_t moved(uint64_t description, uint32_t bytes) {
  return description + (bytes >> 4);
}

// Before the first product after registers were written.
__device__ __forceinline__ void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kOpen groups of products are under way.
template <int kOpen>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
// Makes this thread's writes to shared memory visible to products; a barrier follows.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Keeps the compiler from moving uses of a product's registers across a wait.
template <int kTiles>
__device__ __forceinline__ void hold(float (&x)[kTiles][4]) {
#pragma unroll
  for (auto& row : x) {
#pragma unroll
    for (float& value : row) asm volatile("" : "+f"(value)::"memory");
  }
}

// clang-format off
#define RH_FOUR(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define RH_THIRTY_TWO(c, i) RH_FOUR(c, i), RH_FOUR(c, i + 1), RH_FOUR(c, i + 2), RH_FOUR(c, i + 3), \
  RH_FOUR(c, i + 4), RH_FOUR(c, i + 5), RH_FOUR(c, i + 6), RH_FOUR(c, i + 7)
#define RH_NAMES_0_TO_31 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RH_NAMES_32_TO_63 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RH_MULTIPLY_64(type) asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" \
  "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" RH_NAMES_0_TO_31 "}, " \
  "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n" : RH_THIRTY_TWO(c, 0) \
  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
#define RH_MULTIPLY_128(type) asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n" \
  "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
  RH_NAMES_0_TO_31 ", " RH_NAMES_32_TO_63 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n" \
  : RH_THIRTY_TWO(c, 0), RH_THIRTY_TWO(c, 8) \
  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
// clang-format on

// c = a b, or c += a b where `add` is set.
template <KvType type>
__device__ __forceinline__ void multiply(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  if constexpr (type == KvType::kBF16) {
    RH_MULTIPLY_64("bf16");
  } else {
    RH_MULTIPLY_64("f16");
  }
}
template <KvType type>
__device__ __forceinline__ void multiply(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  if constexpr (type == KvType::kBF16) {
    RH_MULTIPLY_128("bf16");
  } else {
    RH_MULTIPLY_128("f16");
  }
}

#undef RH_FOUR
#undef RH_THIRTY_TWO
#undef RH_NAMES_0_TO_31
#undef RH_NAMES_32_TO_63
#undef RH_MULTIPLY_64
#undef RH_MULTIPLY_128

}  // namespace rhapsode::kernels::cuda
