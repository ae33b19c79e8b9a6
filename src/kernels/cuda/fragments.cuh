// Matrix fragments of mma.sync.m16n8k16, and the 16-bit types that go into them.
//
// Lane (g, t) = (lane / 4, lane % 4). A (16 x 16, row-major) has 4 registers: (g, 2t..), (g + 8, 2t..), (g,
// 2t + 8..), (g + 8, 2t + 8..); B (16 x 8) has 2: (2t.., g), (2t + 8.., g); C (16 x 8, float) has 4: (g,
// 2t..), (g + 8, 2t..).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/page.h"

namespace rhapsode::kernels::cuda {

// Eight elements of a page as 16-bit numbers, and products of such.
template <KvType>
struct Narrow;

struct NarrowHalf {
  static __device__ uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

struct NarrowBrain {
  static __device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

// Reads past L1: every byte of a page is used once by a block.
__device__ inline uint4 load_16_bytes(const void* address) {
  uint4 x;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
      : "l"(address));
  return x;
}
__device__ inline uint2 load_8_bytes(const void* address) {
  uint2 x;
  asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(address));
  return x;
}

template <>
struct Narrow<KvType::kF16> : NarrowHalf {
  using Eight = uint4;
  static __device__ Eight load(const void* address) { return load_16_bytes(address); }
  static __device__ uint4 widen(const Eight& x) { return x; }
};
template <>
struct Narrow<KvType::kBF16> : NarrowBrain {
  using Eight = uint4;
  static __device__ Eight load(const void* address) { return load_16_bytes(address); }
  static __device__ uint4 widen(const Eight& x) { return x; }
};
template <>
struct Narrow<KvType::kI8> : NarrowHalf {
  using Eight = uint2;
  static __device__ Eight load(const void* address) { return load_8_bytes(address); }
  // 0x6400 | u is the half 1024 + u; u = x + 128, so 1152 is to be taken off again.
  static __device__ uint32_t two(uint32_t biased, uint32_t selector) {
    uint32_t bits = __byte_perm(biased, 0x64646464u, selector);
    const __half2 pair = __hsub2(reinterpret_cast<const __half2&>(bits), __float2half2_rn(1152.0f));
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ uint4 widen(const Eight& x) {
    const uint32_t low = x.x ^ 0x80808080u;
    const uint32_t high = x.y ^ 0x80808080u;
    return {two(low, 0x4140), two(low, 0x4342), two(high, 0x4140), two(high, 0x4342)};
  }
};

__device__ inline uint32_t word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

// Four loads of eight elements, the contraction's index being the load: the A fragment whose rows g and g + 8
// are elements 2i and 2i + 1 of lane g's eight.
__device__ inline void fragment_of(const uint4 (&loads)[4], int i, uint32_t (&a)[4]) {
  a[0] = __byte_perm(word(loads[0], i), word(loads[1], i), 0x5410);
  a[1] = __byte_perm(word(loads[0], i), word(loads[1], i), 0x7632);
  a[2] = __byte_perm(word(loads[2], i), word(loads[3], i), 0x5410);
  a[3] = __byte_perm(word(loads[2], i), word(loads[3], i), 0x7632);
}

// The 8 x 8 matrix of 16-bit elements that a warp holds, transposed.
__device__ inline uint32_t transposed(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

}  // namespace rhapsode::kernels::cuda
