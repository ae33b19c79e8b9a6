// What fills the ring: every page that some row of a tile sees, as far ahead as there are stages.
#pragma once

#include "kernels/cuda/ring_memory.cuh"

namespace rhapsode::kernels::cuda {

// The positions that a tile's rows have.
struct Reach {
  int32_t lowest;
  int32_t highest;
};

__device__ __forceinline__ Reach reach_of(const WideParameters& p, const DeviceTile& tile) {
  Reach reach{INT32_MAX, INT32_MIN};
  for (int row = threadIdx.x % 32; row < tile.row_count; row += 32) {
    const int32_t position = p.plan.positions[tile.row_begin + row];
    reach.lowest = min(reach.lowest, position);
    reach.highest = max(reach.highest, position);
  }
  return {__reduce_min_sync(~0u, reach.lowest), __reduce_max_sync(~0u, reach.highest)};
}

__device__ __forceinline__ bool seen_by_any(const WideParameters& p, const DeviceReference& reference,
                                            const Reach& reach) {
  if (reference.gathered >= 0) return true;
  if ((reference.mask & visible_consecutive(reference, reach.highest, 0)) == 0) return false;
  const int64_t last = int64_t{reference.first} + kPageTokens - 1;
  return p.window == 0 || reference.sink || reach.lowest - last < p.window;
}

__device__ __forceinline__ bool seen_by_all(const WideParameters& p, const DeviceReference& reference,
                                            const Reach& reach) {
  if (reference.gathered >= 0 || reference.mask != ~0ull) return false;
  if (int64_t{reference.first} + kPageTokens - 1 > reach.lowest) return false;
  return p.window == 0 || reference.sink || int64_t{reach.highest} - reference.first < p.window;
}

__device__ inline RingPage page_of_lane(const RingPage& mine, int lane) {
  RingPage page;
  const auto* from = reinterpret_cast<const int*>(&mine);
  auto* to = reinterpret_cast<int*>(&page);
#pragma unroll
  for (int i = 0; i < 9; ++i) to[i] = __shfl_sync(~0u, from[i], lane);
  return page;
}

// The warps that copy.
template <class C>
struct RingWriter {
  const WideParameters& p;
  RingMemory<C>& memory;
  int written = 0;    // pages
  int announced = 0;  // of these

  // The thread's part of a page. Slots without bytes of their own become zeros: they may hold NaN, which no
  // zero probability removes from the sum of values.
  __device__ void copy(const DeviceHead& page, uint64_t mask, int stage) const {
    using M = RingMemory<C>;
    const uint32_t keys = shared_address(memory.pages[stage][0]);
    const uint32_t values = shared_address(memory.pages[stage][1]);
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
#pragma unroll 2
    for (int i = 0; i < C::kDim / 16; ++i) {  // a warp copies 16 dimensions of 16 slots at once
      const int part = i * kCopyingWarps + warp;
      const int group = part / (C::kDim / 16);
      const int dim = part % (C::kDim / 16) * 16 + lane / 16 * 8 + lane % 8;
      const int half = lane / 8 % 2;
      copy_16_bytes(keys + M::key_at(2 * group + half, dim),
                    page.k + ((group * C::kDim + dim) * 2 + half) * 16, true);
    }
#pragma unroll 2
    for (int i = 0; i < C::kDim / 16; ++i) {
      const int piece = i * kGroupThreads + static_cast<int>(threadIdx.x);
      const int slot = piece / (C::kDim / 8);
      const int eight = piece % (C::kDim / 8);
      copy_16_bytes(values + M::value_at(eight, slot), page.v + (slot * (C::kDim / 8) + eight) * 16,
                    mask >> slot & 1);
    }
  }

  // Says of every page but the newest kOpen that it is whole.
  template <int kOpen>
  __device__ void announce() {
    wait_copies<kOpen>();
    publish_shared();
    __syncwarp();
    for (; announced < written - kOpen; ++announced) {
      if (threadIdx.x % 32 == 0) arrive(memory.full[announced % C::kStages]);
    }
  }

  __device__ void put(const RingPage& page, int kv_head) {
    const int stage = written % C::kStages;
    const uint32_t parity = (written / C::kStages & 1) ^ 1;
    if (!__all_sync(~0u, has_passed(memory.empty[stage], parity))) {
      announce<0>();  // the readers may be waiting for what is there
      wait_barrier(memory.empty[stage], parity);
    }
    if (threadIdx.x == 0) memory.infos[stage] = page;
    if (page.reference.data) {
      copy(device_head(p.layout, page.reference.data, p.layer, kv_head), page.reference.mask, stage);
    }
    close_copies();
    ++written;
    if (written - announced > kLag) announce<kLag>();
  }

  // Every page of the part that some row of the tile sees, in the list's order, and the end behind them;
  // every warp looks at 32 references at once.
  __device__ void write_part(const RingPart& part) {
    const DeviceList list = p.plan.lists[part.tile.sequence];
    const Reach reach = reach_of(p, part.tile);
    const int end = list.count * (part.split + 1) / p.schedule.splits;
    for (int begin = list.count * part.split / p.schedule.splits; begin < end; begin += 32) {
      const int r = begin + static_cast<int>(threadIdx.x) % 32;
      RingPage mine{};
      bool seen = false;
      if (r < end) {
        mine.reference = p.plan.references[list.begin + r];
        mine.whole = seen_by_all(p, mine.reference, reach);
        seen = seen_by_any(p, mine.reference, reach);
      }
      for (unsigned wanted = __ballot_sync(~0u, seen); wanted != 0; wanted &= wanted - 1) {
        put(page_of_lane(mine, __ffs(static_cast<int>(wanted)) - 1), part.kv_head);
      }
    }
    put(RingPage{}, part.kv_head);
  }
};

}  // namespace rhapsode::kernels::cuda
