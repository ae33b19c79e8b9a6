// What fills the rings: every page that some row of a tile sees, as far ahead as there are stages.
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

// A reference, as the lane knows it that has looked at it.
struct FoundPage {
  DeviceReference reference;
  int32_t whole;  // every row of the tile sees every slot
};

// What is copied of a page.
struct RingCopy {
  const std::byte* data = nullptr;  // null: zeros
  uint64_t mask = 0;
};

// The warps that copy.
template <class C>
struct RingWriter {
  using Memory = RingMemory<C>;
  const WideParameters& p;
  Memory& memory;
  int kv_head = 0;
  int keys_put = 0;         // steps, and ends of tiles
  int values_put = 0;       // steps
  int pages = 0;            // of the step at hand
  int32_t frame = 0;        // likewise
  int32_t whole = 0;        // likewise: a bit a page, in the first warp
  RingCopy step[C::kStep];  // likewise
  bool owed = false;        // the values of `last`
  RingCopy last[C::kStep];  // the step before

  __device__ __forceinline__ DeviceHead head_of(const RingCopy& page) const {
    const std::byte* data = page.data != nullptr ? page.data : p.plan.references->data;  // not read
    return device_head(p.layout, data, p.layer, kv_head);
  }

  // The thread's part of a page's keys. A warp copies 16 dimensions of 16 slots at once: the address of the
  // first piece is computed, the others are so many bytes further.
  __device__ __forceinline__ void copy_keys(const RingCopy& page, uint32_t keys) const {
    constexpr int kSixteens = C::kDim / 16;
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int first_dim = warp * 16 + lane / 16 * 8 + lane % 8;
    const int half = lane / 8 % 2;
    const std::byte* from = head_of(page).k + first_dim * 32 + half * 16;
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      const int group = i * kCopyingWarps / kSixteens;
      const int dim = i * kCopyingWarps % kSixteens * 16;  // beyond the first
      copy_16_bytes(keys + Memory::key_at(2 * group + half, first_dim) + dim * 128,
                    from + (group * C::kDim + dim) * 32, page.data != nullptr);
    }
  }

  // Likewise of its values. Slots without bytes of their own become zeros: they may hold NaN, which no zero
  // probability removes from the sum of values.
  __device__ __forceinline__ void copy_values(const RingCopy& page, uint32_t values) const {
    constexpr int kEights = C::kDim / 8;
    constexpr int kSlotsAtOnce = kGroupThreads / kEights;
    static_assert(kSlotsAtOnce % 8 == 0);
    const int first_slot = static_cast<int>(threadIdx.x) / kEights;
    const int eight = static_cast<int>(threadIdx.x) % kEights;
    const uint64_t mask = page.mask >> first_slot;
    const std::byte* from = head_of(page).v + (first_slot * kEights + eight) * 16;
    const uint32_t to = values + Memory::value_at(eight, first_slot);
#pragma unroll
    for (int i = 0; i < C::kDim / 16; ++i) {
      const int slot = i * kSlotsAtOnce;  // beyond the first
      copy_16_bytes(to + slot * 128, from + slot * kEights * 16, mask >> slot & 1);
    }
  }

  __device__ __forceinline__ void wait_empty(uint64_t& barrier, int put) const {
    wait_barrier(barrier, (put / C::kStages & 1) ^ 1);
  }
  // Ends the copies into a stage. An arrival with copies says nothing of what the thread stored itself.
  __device__ __forceinline__ void close(uint64_t& full) const {
    arrive_with_copies(full);
    if (threadIdx.x == 0) arrive(full);
  }

  __device__ __forceinline__ void put_values() {
    const int stage = values_put % C::kStages;
    wait_empty(memory.of_values.empty[stage], values_put);
#pragma unroll
    for (int i = 0; i < C::kStep; ++i) copy_values(last[i], shared_address(memory.values[stage][i]));
    close(memory.of_values.full[stage]);
    ++values_put;
    owed = false;
  }

  // What is to be known of page `i` of the step at hand, which lane `from` knows. By the first warp.
  template <int i>
  __device__ __forceinline__ void tell(const FoundPage& mine, int from) {
    const auto its = [&](int32_t x) { return __shfl_sync(~0u, x, from); };
    if (its(mine.whole)) {
      whole |= 1 << i;
      return;
    }
    const uint64_t mask = __shfl_sync(~0u, static_cast<unsigned long long>(mine.reference.mask), from);
    const RingPage page{mask, its(mine.reference.first), its(mine.reference.gathered),
                        its(mine.reference.sink)};
    if (threadIdx.x == 0) memory.pages[keys_put % C::kStages][i] = page;
  }

  template <int i>
  __device__ __forceinline__ void put_keys(const RingCopy& page, const FoundPage& mine, int from) {
    const int stage = keys_put % C::kStages;
    if constexpr (i == 0) wait_empty(memory.of_keys.empty[stage], keys_put);
    if (threadIdx.x < 32) tell<i>(mine, from);
    copy_keys(page, shared_address(memory.keys[stage][i]));
    step[i] = page;
    if constexpr (i + 1 == C::kStep) end_step();
  }

  __device__ __forceinline__ void close_keys(int32_t sign) {
    const int stage = keys_put % C::kStages;
    if (threadIdx.x == 0) memory.signs[stage] = sign;
    close(memory.of_keys.full[stage]);
    ++keys_put;
  }

  // The values of the step before are needed at the same time as the keys of this one.
  __device__ __forceinline__ void end_step() {
    close_keys(frame << C::kStep | whole);
    whole = 0;
    if (owed) put_values();
#pragma unroll
    for (int i = 0; i < C::kStep; ++i) last[i] = step[i];
    owed = true;
    pages = 0;
  }

  // A step has one frame: where that changes, it goes without its second page.
  __device__ __forceinline__ void fill_step() {
    if constexpr (C::kStep > 1) {
      FoundPage nothing{};
      nothing.reference.gathered = -1;
      if (pages == 1) put_keys<1>({}, nothing, 0);
    }
  }

  // The page that a lane of each warp knows.
  __device__ __forceinline__ void put(const FoundPage& mine, int lane) {
    const auto address = reinterpret_cast<unsigned long long>(mine.reference.data);
    const RingCopy page{reinterpret_cast<const std::byte*>(__shfl_sync(~0u, address, lane)),
                        __shfl_sync(~0u, static_cast<unsigned long long>(mine.reference.mask), lane)};
    const int32_t its_frame = __shfl_sync(~0u, mine.reference.shift_row, lane);
    if constexpr (C::kStep > 1) {
      if (pages == 1 && frame == its_frame) return put_keys<1>(page, mine, lane);
      fill_step();
      pages = 1;
    }
    frame = its_frame;
    put_keys<0>(page, mine, lane);
  }

  __device__ __forceinline__ void put_end() {
    wait_empty(memory.of_keys.empty[keys_put % C::kStages], keys_put);
    close_keys(Memory::kEnd);
    if (owed) put_values();
  }

  // Every page of the part that some row of the tile sees, in the list's order, and the end behind them;
  // every warp looks at 32 references at once.
  __device__ __forceinline__ void write_part(const RingPart& part) {
    kv_head = part.kv_head;
    const DeviceList list = p.plan.lists[part.tile.sequence];
    const Reach reach = reach_of(p, part.tile);
    const int end = min(list.count, part.end);
    for (int begin = part.begin; begin < end; begin += 32) {
      const int r = begin + static_cast<int>(threadIdx.x) % 32;
      FoundPage mine{};
      bool seen = false;
      if (r < end) {
        mine.reference = p.plan.references[list.begin + r];
        mine.whole = seen_by_all(p, mine.reference, reach);
        seen = seen_by_any(p, mine.reference, reach);
      }
      for (unsigned wanted = __ballot_sync(~0u, seen); wanted != 0; wanted &= wanted - 1) {
        put(mine, __ffs(static_cast<int>(wanted)) - 1);
      }
    }
    fill_step();
    put_end();
  }
};

}  // namespace rhapsode::kernels::cuda
