// Two rings in shared memory, between the warps of attend_ring that copy pages and those that multiply.
//
// A tile's pages are taken in steps of kStep pages of one frame; stage i % kStages of a ring holds step i:
// its keys, with what is to be known of its pages, or its values, which are needed one step later and longer.
// full[stage] opens when every copy of a copying thread has arrived, empty[stage] when every multiplying warp
// has said that it needs the stage no more.
#pragma once

#include <cstdint>

#include "kernels/cuda/attend_ring.h"
#include "kernels/cuda/page_access.cuh"
#include "kernels/cuda/turned.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace rhapsode::kernels::cuda {

constexpr int kQueriesOfAGroup = 64;
constexpr int kGroupThreads = 128;
constexpr int kCopyingWarps = 4;
constexpr float kLog2E = 1.44269504088896340736f;
// Powers of two that probabilities may exceed one by before the state is brought to a new maximum.
constexpr float kSlack = 8.0f;

template <KvType type_, int dim_, int groups_, int step_, int stages_, bool turns_, bool plain_ = true>
struct RingConfig {
  static constexpr KvType kType = type_;
  static constexpr int kDim = dim_;
  static constexpr int kGroups = groups_;  // that multiply
  static constexpr int kStep = step_;      // pages
  static constexpr int kStages = stages_;  // of keys, and as many of values
  static constexpr bool kTurns = turns_;   // groups issue products in turn
  // Nothing is capped, and pairs of dimensions are half a head apart: what most models have.
  static constexpr bool kPlain = plain_;
  static constexpr int kSlots = step_ * kPageTokens;
  static constexpr int kThreads = (groups_ + 1) * kGroupThreads;
  static constexpr int kQueries = groups_ * kQueriesOfAGroup;
  // A block starts with the same for every thread, and copying warps give some to the others: together they
  // may have no more than there were, or the others wait for ever.
  static constexpr int kRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kCopyRegisters = 56;
  static constexpr int kProductRegisters = ((groups_ + 1) * kRegisters - kCopyRegisters) / groups_ / 8 * 8;
  static_assert(groups_ * kProductRegisters + kCopyRegisters <= (groups_ + 1) * kRegisters);
};

struct WideParameters {
  PageLayout layout;
  DevicePlan plan;
  RingSchedule schedule;
  const float* row_angles;
  const float* shift_angles;
  const float* q;
  int64_t q_stride;
  void* out;
  float* lse;
  int layer;
  int heads;
  int group;
  float scale;
  int32_t window;
  float soft_cap;
  Turning turning;
};

// A tile's queries of one KV head, with some pages of its list.
struct RingPart {
  DeviceTile tile;
  int kv_head;
  int begin;  // in the list
  int end;
  int slot;  // of the partial result; -1: there is no other
};

__device__ __forceinline__ RingPart ring_part(const WideParameters& p, const DevicePart& part) {
  return {p.schedule.tiles.tiles[part.item / p.layout.kv_heads], part.item % p.layout.kv_heads, part.begin,
          part.end, part.slot};
}

// A part of a list that is cut into so many.
__device__ __forceinline__ RingPart split_part(const WideParameters& p, int part) {
  const int splits = p.schedule.splits;
  RingPart whole = ring_part(p, {part / splits, 0, INT32_MAX, -1});
  if (splits == 1) return whole;
  const int64_t count = p.plan.lists[whole.tile.sequence].count;
  const int split = part % splits;
  whole.begin = static_cast<int>(count * split / splits);
  whole.end = static_cast<int>(count * (split + 1) / splits);
  whole.slot = part;
  return whole;
}

// What is to be known of a page that not every row of the tile sees whole.
struct RingPage {
  uint64_t mask = 0;
  int32_t first = 0;
  int32_t gathered = -1;
  int32_t sink = 0;
  int32_t padding[3] = {};
};

template <int kStages>
struct RingBarriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

template <class C>
struct RingMemory {
  static constexpr int kMatrixBytes = kPageTokens * C::kDim * 2;
  static constexpr int kQueryRow = C::kDim + 8;
  static constexpr int32_t kEnd = -1;  // in place of a sign: the tile has no more pages
  std::byte keys[C::kStages][C::kStep][kMatrixBytes];
  std::byte values[C::kStages][C::kStep][kMatrixBytes];
  float queries[C::kQueries][kQueryRow];  // turned by their own position, scaled; the position behind them
  // Written by thread 0, read by the first lane of a warp: those that arrive at barriers, so that who looks
  // for races (compute-sanitizer) need not know what a warp's other lanes have to do with it.
  RingPage pages[C::kStages][C::kStep];  // that are not seen whole
  int32_t signs[C::kStages];  // the shift row of the step's pages, below it a bit a page: seen whole
  RingBarriers<C::kStages> of_keys;
  RingBarriers<C::kStages> of_values;

  // Where a piece of 16 bytes stands: eight slots of one dimension, eight dimensions of one slot. Keys are
  // one row a dimension, values one a slot and 64 dimensions, both swizzled: see describe_swizzled().
  static __device__ uint32_t key_at(int eight, int dim) {
    return static_cast<uint32_t>(dim * 128 + (eight ^ dim % 8) * 16);
  }
  static __device__ uint32_t value_at(int eight, int slot) {
    return static_cast<uint32_t>(eight / 8 * kPageTokens * 128 + slot * 128 + (eight % 8 ^ slot % 8) * 16);
  }
  static constexpr uint32_t kStepBytes = 2048;  // of 16 dimensions or slots
  static __device__ uint64_t describe_keys(uint32_t at) { return describe_swizzled(at, kMatrixBytes); }
  static __device__ uint64_t describe_values(uint32_t at) { return describe_swizzled(at, kPageTokens * 128); }
};

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ inline void make_barrier(uint64_t& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
__device__ inline void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ inline void wait_barrier(uint64_t& barrier, uint32_t parity) {
  uint32_t passed = 0;
  while (passed == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(passed)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  }
}

// 16 bytes, or as many zeros.
__device__ inline void copy_16_bytes(uint32_t to, const void* from, bool filled) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(filled ? 16 : 0)
               : "memory");
}
// Arrives once every copy that this thread began is there. Copies go by the generic proxy: who waits for them
// publishes them to products by publish_shared().
__device__ inline void arrive_with_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

}  // namespace rhapsode::kernels::cuda
