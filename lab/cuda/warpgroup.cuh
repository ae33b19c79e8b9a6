// Products of a warpgroup (wgmma, sm_90a): 64 x 16 in registers times 16 x 64 in shared memory.
//
// A's and C's fragments are those of mma.m16n8k16, warp w of the group having rows 16w to 16w + 15. B is
// given by a description of where it lies; it is read asynchronously, so shared memory written by ordinary
// stores or copies must be published first, and registers of a product must not be touched before it has been
// waited for. Description (PTX, "matrix descriptor"): B's eight contiguous elements of N (16 bytes) stand row
// after row for eight k (128 bytes); `k_step` bytes further are the next eight k, `n_step` bytes further the
// next eight of N.
#pragma once

#include "kernels/cuda/fragments.cuh"

namespace rhapsode::kernels::cuda {

__device__ inline uint64_t describe_matrix(uint32_t address, int k_step, int n_step) {
  const auto field = [](uint32_t bytes) { return static_cast<uint64_t>((bytes & 0x3ffff) >> 4); };
  return field(address) | field(static_cast<uint32_t>(k_step)) << 16 |
         field(static_cast<uint32_t>(n_step)) << 32;
}

// Before the first product after registers were written.
__device__ inline void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kOpen groups of products are under way.
template <int kOpen>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpen) : "memory");
}
// Makes this thread's writes to shared memory visible to products; a barrier follows.
__device__ inline void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Keeps the compiler from moving uses of a product's registers across a wait.
__device__ inline void hold(float (&x)[8][4]) {
#pragma unroll
  for (auto& row : x) {
#pragma unroll
    for (float& value : row) asm volatile("" : "+f"(value)::"memory");
  }
}

// c (+)= a b
struct WideHalf {
  static __device__ void multiply_wide(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
          "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),
          "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),
          "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
  }
};
struct WideBrain {
  static __device__ void multiply_wide(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]),
          "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]),
          "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]),
          "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]),
          "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]),
          "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
  }
};

template <KvType>
struct WideProduct;
template <>
struct WideProduct<KvType::kF16> : WideHalf {};
template <>
struct WideProduct<KvType::kBF16> : WideBrain {};
template <>
struct WideProduct<KvType::kI8> : WideHalf {};

}  // namespace rhapsode::kernels::cuda
