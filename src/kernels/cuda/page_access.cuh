// Page layout and visibility for device code: the counterparts of page.h and visible_slots().
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/plan_layout.h"
#include "kernels/page.h"

namespace rhapsode::kernels::cuda {

template <KvType>
struct PageElement;
template <>
struct PageElement<KvType::kF32> {
  using Type = float;
  static __device__ float load(float x) { return x; }
  static __device__ float store(float x, float) { return x; }
};
template <>
struct PageElement<KvType::kF16> {
  using Type = __half;
  static __device__ float load(__half x) { return __half2float(x); }
  static __device__ __half store(float x, float) { return __float2half_rn(x); }
};
template <>
struct PageElement<KvType::kBF16> {
  using Type = __nv_bfloat16;
  static __device__ float load(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 store(float x, float) { return __float2bfloat16_rn(x); }
};
template <>
struct PageElement<KvType::kI8> {
  using Type = int8_t;
  static __device__ float load(int8_t x) { return static_cast<float>(x); }
  static __device__ int8_t store(float x, float inverse_scale) {
    return static_cast<int8_t>(fminf(fmaxf(rintf(x * inverse_scale), -127.0f), 127.0f));
  }
};

// Sizes of a page, computed once on the host.
struct PageLayout {
  int64_t page_bytes;
  int64_t head_bytes;  // K or V of one head
  int64_t k_bytes;
  int kv_heads;
  int head_dim;
};
inline PageLayout page_layout(const KvShape& shape) {
  return {static_cast<int64_t>(shape.page_bytes()), static_cast<int64_t>(shape.k_bytes()) / shape.kv_heads,
          static_cast<int64_t>(shape.k_bytes()), shape.kv_heads, shape.head_dim};
}

// One layer and KV head of a block.
struct DeviceHead {
  std::byte* k;
  std::byte* v;
  float* k_scale;  // of int8 pages
  float* v_scale;
};
__device__ inline DeviceHead device_head(const PageLayout& layout, const std::byte* block, int layer,
                                         int head) {
  std::byte* page = const_cast<std::byte*>(block) + layer * layout.page_bytes;
  float* scales = reinterpret_cast<float*>(page + 2 * layout.k_bytes);
  return {page + head * layout.head_bytes, page + layout.k_bytes + head * layout.head_bytes,
          scales + head * kPageTokens, scales + (layout.kv_heads + head) * kPageTokens};
}

// Brings a page's keys and values of one head to the L2, asked for by one lane of a warp. Others may be
// writing them: what is read later is what they wrote.
__device__ inline void prefetch_head(const PageLayout& layout, const DeviceHead& head) {
  if (threadIdx.x % 32 != 0) return;
  for (const std::byte* from : {head.k, head.v}) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
                 "r"(static_cast<uint32_t>(layout.head_bytes))
                 : "memory");
  }
}

__device__ inline uint64_t first_slots(int64_t count) {
  if (count <= 0) return 0;
  return count >= kPageTokens ? ~0ull : (1ull << count) - 1;
}

// Slots of a consecutive page that a row at `position` may see; without the mask.
template <class Reference>
__device__ inline uint64_t visible_consecutive(const Reference& reference, int32_t position, int32_t window) {
  const int64_t reached = int64_t{position} - reference.first + 1;
  uint64_t visible = first_slots(reached);
  if (window > 0 && !reference.sink) visible &= ~first_slots(reached - window);
  return visible;
}

// Whether a row at `position` may see a key at `key_position`.
__device__ inline bool sees(int32_t position, int32_t key_position, int32_t window, bool sink) {
  const int64_t distance = int64_t{position} - key_position;
  return distance >= 0 && (window == 0 || sink || distance < window);
}

// The pair (a, b) turned by one angle.
struct Pair {
  float a;
  float b;
};
__device__ inline Pair turn(Pair x, float cosine, float sine) {
  return {x.a * cosine - x.b * sine, x.a * sine + x.b * cosine};
}

}  // namespace rhapsode::kernels::cuda
