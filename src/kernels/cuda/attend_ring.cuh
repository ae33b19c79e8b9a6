// attend_ring's kernel, for every way to set it up: see attend_ring.h.
//
// A block has one warpgroup that copies pages into a ring and two or three that have 64 queries each and take
// pages from the ring at their own pace. While one makes the probabilities of a page, its products with the
// values of the page before are under way, and so are the other warpgroups' products.
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

// What takes a warpgroup's 64 queries through the pages of the ring, tile after tile.
template <class C>
struct RingReader {
  const WideParameters& p;
  RingMemory<C>& memory;
  Turns<C> turns;
  int i = 0;  // the page at hand, over all tiles

  __device__ __forceinline__ const RingPage& wait_page() const {
    wait_barrier(memory.full[i % C::kStages], i / C::kStages & 1);
    return memory.infos[i % C::kStages];
  }
  __device__ __forceinline__ void release(int page) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(memory.empty[page % C::kStages]);
  }
  __device__ __forceinline__ uint32_t keys(int page) const {
    return shared_address(memory.pages[page % C::kStages][0]);
  }
  __device__ __forceinline__ uint32_t values(int page) const {
    return shared_address(memory.pages[page % C::kStages][1]);
  }

  // The pages of one tile; the warp's queries begin at `mine`, of this lane's first row.
  __device__ __forceinline__ void read_tile(const float* mine, RingState<C>& state) {
    const RingPage& first = wait_page();
    if (first.reference.data == nullptr) return release(i++);
    float scores[8][4] = {};
    float keep[2] = {1.0f, 1.0f};
    state.turn_to(p, mine, first.reference.shift_row);
    state.begin_scores(keys(i), scores);
    wait_products<0>();
    hold(scores);
    adjust_scores(p, first, state.position, scores);
    state.soften(scores, keep);
    state.pack(scores);
    for (++i;; ++i) {
      const RingPage& page = wait_page();
      if (page.reference.data == nullptr) break;
      state.turn_to(p, mine, page.reference.shift_row);
      turns.take();
      state.begin_scores(keys(i), scores);
      state.begin_values(values(i - 1));
      turns.pass();
      wait_products<1>();
      hold(scores);
      adjust_scores(p, page, state.position, scores);
      const bool moved = state.soften(scores, keep);
      // Waiting in two branches keeps the wait behind the probabilities, where one would be moved up.
      if (moved) {
        wait_products<0>();
        hold(state.out);
        state.rescale(keep);
      } else {
        wait_products<0>();
        hold(state.out);
      }
      release(i - 1);
      state.pack(scores);
    }
    state.begin_values(values(i - 1));
    wait_products<0>();
    hold(state.out);
    release(i - 1);
    release(i++);
  }
};

// A block takes every gridDim.x-th part of a tile of a KV head, in turns from both ends of that many, since
// tiles that begin first see most.
template <typename F>
__device__ __forceinline__ void for_each_part(const WideParameters& p, const F& visit) {
  const int items = p.schedule.tiles.count * p.layout.kv_heads * p.schedule.splits;
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  for (int round = 0; round * blocks < items; ++round) {
    const int item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (item < items) visit(ring_part(p, item));
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    ring_kernel(const __grid_constant__ WideParameters p, Element out_element) {
  extern __shared__ __align__(1024) std::byte shared[];
  auto& memory = *reinterpret_cast<RingMemory<C>*>(shared);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < C::kStages; ++stage) {
      make_barrier(memory.full[stage], kCopyingWarps);
      make_barrier(memory.empty[stage], C::kGroups * kGroupThreads / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(C::kCopyRegisters));
    RingWriter<C> writer{p, memory};
    for_each_part(p, [&](const RingPart& part) { writer.write_part(part); });
    writer.template announce<0>();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(C::kProductRegisters));
    const int first = static_cast<int>(threadIdx.x / 32 - kCopyingWarps) * 16;  // of this warp's queries
    RingReader<C> reader{p, memory, {static_cast<int>(threadIdx.x) / kGroupThreads - 1}};
    reader.turns.begin();
    for_each_part(p, [&](const RingPart& part) {
      const DeviceTile& tile = part.tile;
      load_queries(p, tile, part.kv_head, first, memory);
      RingState<C> state;
      for (int h = 0; h < 2; ++h) {
        const int m = first + threadIdx.x % 32 / 4 + 8 * h;
        state.position[h] = p.plan.positions[tile.row_begin + min(m / p.group, tile.row_count - 1)];
      }
      reader.read_tile(memory.queries[first + threadIdx.x % 32 / 4], state);
      if (p.schedule.splits > 1) {
        store_partial(p, part.item, first, state);
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
  const int blocks = std::min(kProcessors, items * schedule.splits);
  ring_kernel<C><<<static_cast<unsigned>(blocks), C::kThreads, kBytes, stream>>>(p, attend.out.element);
  if (schedule.splits == 1) return;
  const dim3 merges(static_cast<unsigned>(items), C::kQueries / kMergedAtOnce);
  ring_merge_kernel<C><<<merges, kMergedAtOnce * 32, 0, stream>>>(p, attend.out.element);
}

}  // namespace rhapsode::kernels::cuda
