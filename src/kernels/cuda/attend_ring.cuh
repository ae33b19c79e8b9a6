// attend_ring's kernel, for every way to set it up: see attend_ring.h.
//
// A block has one warpgroup that copies pages into two rings, of keys and of values, and two or three that
// have 64 queries each and take pages from there at their own pace, step by step. While one makes the
// probabilities of a step, its products with the values of the step before are under way, and so are the
// other warpgroups'.
#pragma once

#include <algorithm>

#include "kernels/cuda/ring_merge.cuh"
#include "kernels/cuda/ring_state.cuh"
#include "kernels/cuda/ring_tile.cuh"
#include "kernels/cuda/ring_writer.cuh"

namespace rhapsode::kernels::cuda {

// Groups issue their products one after another, so that one multiplies while another softens.
template <class C>
struct Turns {
  int group;
  static constexpr int kFirstBarrier = 1;

  __device__ __forceinline__ void begin() const {
    if (group == 0) give(0);
  }
  __device__ void take() const {
    if constexpr (C::kTurns) {
      asm volatile("bar.sync %0, %1;" ::"r"(kFirstBarrier + group), "n"(2 * kGroupThreads) : "memory");
    }
  }
  __device__ void pass() const { give(group + 1 == C::kGroups ? 0 : group + 1); }

 private:
  __device__ void give(int to) const {
    if constexpr (C::kTurns) {
      asm volatile("bar.arrive %0, %1;" ::"r"(kFirstBarrier + to), "n"(2 * kGroupThreads) : "memory");
    }
  }
};

// What takes a warpgroup's 64 queries through the steps of the ring, tile after tile.
template <class C>
struct RingReader {
  using Scores = typename RingState<C>::Scores;
  const WideParameters& p;
  RingMemory<C>& memory;
  Turns<C> turns;
  int i = 0;  // steps of keys taken, over all tiles; with the ends of tiles
  int v = 0;  // of values; these have no ends

  // The step's sign.
  __device__ __forceinline__ int32_t wait_keys() const {
    wait_barrier(memory.of_keys.full[i % C::kStages], i / C::kStages & 1);
    int32_t sign = 0;
    if (threadIdx.x % 32 == 0) sign = memory.signs[i % C::kStages];
    return __shfl_sync(~0u, sign, 0);
  }
  __device__ __forceinline__ uint32_t wait_values() const {
    wait_barrier(memory.of_values.full[v % C::kStages], v / C::kStages & 1);
    return shared_address(memory.values[v % C::kStages]);
  }
  __device__ __forceinline__ uint32_t keys() const { return shared_address(memory.keys[i % C::kStages]); }
  __device__ __forceinline__ void release(uint64_t& empty) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(empty);
  }
  __device__ __forceinline__ void release_keys() { release(memory.of_keys.empty[i++ % C::kStages]); }
  __device__ __forceinline__ void release_values() { release(memory.of_values.empty[v++ % C::kStages]); }

  __device__ __forceinline__ void adjust(int32_t sign, const float* mine, Scores& scores) const {
    const RingPage* pages = memory.pages[i % C::kStages];
    if constexpr (!C::kPlain) {
      if (p.soft_cap > 0) cap_scores(p.soft_cap, scores);
    }
    if (!(sign & 1)) hide_unseen<C, 0>(p, pages[0], mine, scores);
    if constexpr (C::kStep > 1) {
      if (!(sign & 2)) hide_unseen<C, 1>(p, pages[1], mine, scores);
    }
  }

  // The pages of one tile; the warp's queries begin at `mine`, of this lane's first row.
  __device__ __forceinline__ void read_tile(const float* mine, RingState<C>& state) {
    int32_t sign = wait_keys();
    if (sign == RingMemory<C>::kEnd) return release_keys();
    Scores scores = {};
    float keep[2] = {1.0f, 1.0f};
    state.turn_to(p, mine, sign >> C::kStep);
    publish_shared();
    hold(scores);
    open_products();
    state.begin_scores(keys(), scores);
    wait_products<0>();
    hold(scores);
    adjust(sign, mine, scores);
    release_keys();
    state.soften(scores, keep);
    state.pack(scores);
    for (;;) {
      sign = wait_keys();
      if (sign == RingMemory<C>::kEnd) break;
      state.turn_to(p, mine, sign >> C::kStep);
      publish_shared();
      hold(scores);
      hold(state.out);
      turns.take();
      open_products();
      state.begin_scores(keys(), scores);
      const uint32_t values = wait_values();  // which the scores' products leave time for
      publish_shared();
      state.begin_values(values);
      turns.pass();
      wait_products<1>();
      hold(scores);
      adjust(sign, mine, scores);
      release_keys();
      const bool moved = state.soften(scores, keep);
      // Waiting in two branches keeps the wait behind the probabilities and their sums (never below zero),
      // where one would be moved up: these are to be had while values are multiplied.
      if (moved || state.sum[0] + state.sum[1] < 0.0f) {
        wait_products<0>();
        hold(state.out);
        state.rescale(keep);
      } else {
        wait_products<0>();
        hold(state.out);
      }
      release_values();
      state.pack(scores);
    }
    const uint32_t values = wait_values();
    publish_shared();
    hold(state.out);
    open_products();
    state.begin_values(values);
    wait_products<0>();
    hold(state.out);
    release_values();
    release_keys();
  }
};

// A block takes the parts planned for it; else every gridDim.x-th part of a tile of a KV head, in turns from
// both ends of that many, since tiles that begin first see most.
template <typename F>
__device__ __forceinline__ void for_each_part(const WideParameters& p, const F& visit) {
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  const int items = p.schedule.tiles.count * p.layout.kv_heads * p.schedule.splits;
  const bool planned = p.schedule.planned.rounds > 0;
  const int rounds = planned ? p.schedule.planned.rounds : (items + blocks - 1) / blocks;
  for (int round = 0; round < rounds; ++round) {
    RingPart part;
    if (planned) {
      const DevicePart next = p.schedule.planned.parts[round * blocks + block];
      if (next.item < 0) return;
      part = ring_part(p, next);
    } else {
      const int item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
      if (item >= items) continue;
      part = split_part(p, item);
    }
    visit(part);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    ring_kernel(const __grid_constant__ WideParameters p, Element out_element) {
  extern __shared__ __align__(1024) std::byte shared[];
  auto& memory = *reinterpret_cast<RingMemory<C>*>(shared);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) {
      for (auto* ring : {&memory.of_keys, &memory.of_values}) {
        make_barrier(ring->full[stage], kGroupThreads + 1);
        make_barrier(ring->empty[stage], C::kGroups * kGroupThreads / 32);
      }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(C::kCopyRegisters));
    RingWriter<C> writer{p, memory};
    for_each_part(p, [&](const RingPart& part) { writer.write_part(part); });
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kProductRegisters));
    const int first = static_cast<int>(threadIdx.x / 32 - kCopyingWarps) * 16;  // of this warp's queries
    RingReader<C> reader{p, memory, {static_cast<int>(threadIdx.x) / kGroupThreads - 1}};
    reader.turns.begin();
    for_each_part(p, [&](const RingPart& part) {
      const DeviceTile& tile = part.tile;
      load_queries(p, tile, part.kv_head, first, memory);
      RingState<C> state;
      reader.read_tile(memory.queries[first + threadIdx.x % 32 / 4], state);
      if (part.slot >= 0) {
        store_partial(p, part.slot, first, state);
      } else {
        store_tile(p, tile, part.kv_head, first, out_element, state);
      }
      __syncwarp();  // the queries are read no more
    });
  }
}

template <class C>
void launch_ring(const DeviceAttend& attend, const RingSchedule& schedule, cudaStream_t stream) {
  const TileList& tiles = schedule.tiles;
  if (tiles.count == 0) return;
  WideParameters p{};
  p.layout = page_layout(attend.shape);
  p.plan = attend.plan;
  p.schedule = schedule;
  p.shift_angles = attend.shift_angles;
  p.row_angles = attend.row_angles;
  p.q = attend.q;
  p.q_stride = attend.q_stride;
  p.out = attend.out.data;
  p.lse = attend.lse;
  p.layer = attend.layer;
  p.heads = attend.heads;
  p.group = attend.heads / attend.shape.kv_heads;
  p.scale = attend.scale;
  p.window = attend.window;
  p.soft_cap = attend.soft_cap;
  p.turning = {attend.pairs, attend.adjacent};
  constexpr int kBytes = sizeof(RingMemory<C>);
  cudaFuncSetAttribute(ring_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  const int items = tiles.count * attend.shape.kv_heads;
  const bool planned = schedule.planned.rounds > 0;
  const int blocks = planned ? kProcessors : std::min(kProcessors, items * schedule.splits);
  ring_kernel<C><<<static_cast<unsigned>(blocks), C::kThreads, kBytes, stream>>>(p, attend.out.element);
  const int cut = planned ? schedule.planned.merge_count : schedule.splits > 1 ? items : 0;
  if (cut == 0) return;
  const dim3 merges(static_cast<unsigned>(cut), C::kQueries / kMergedAtOnce);
  ring_merge_kernel<C><<<merges, kMergedAtOnce * 32, 0, stream>>>(p, attend.out.element);
}

}  // namespace rhapsode::kernels::cuda
