// The kernel of attend_mass that multiplies: a run of pages, a KV head and a part of the queries a block.
//
// The tile of queries lies in shared memory in the run's frame, as B fragments are read; each warp takes a
// *unit* of a page's slots into registers as A fragments and goes over the tile with it. Of short runs
// several warps share a unit and take queries in turn.
#pragma once

#include "kernels/cuda/mass_unit.cuh"

namespace rhapsode::kernels::cuda {

__device__ inline float mass_power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What the rows of a tile see of a page, its mask aside: that is heeded where sums are stored, as every slot
// has its own.
enum class MassSight { kNothing, kSome, kAll };

template <class C>
__device__ MassSight sight_of(const RowParameters& p, const DeviceReference& reference,
                              const MassMemory<C>& memory, int count) {
  int32_t lowest = INT_MAX;
  int32_t highest = INT_MIN;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < count; i += 32) {
    lowest = min(lowest, memory.positions[i]);
    highest = max(highest, memory.positions[i]);
  }
  lowest = __reduce_min_sync(~0u, lowest);
  highest = __reduce_max_sync(~0u, highest);
  if (reference.gathered >= 0) return MassSight::kSome;
  const bool windowed = p.window > 0 && !reference.sink;
  const int64_t last =
      int64_t{reference.first} + kPageTokens - 1 - __clzll(static_cast<int64_t>(reference.mask));
  if (reference.first > highest || (windowed && lowest - last >= p.window)) return MassSight::kNothing;
  const bool inside = !windowed || int64_t{highest} - reference.first < p.window;
  return last <= lowest && inside ? MassSight::kAll : MassSight::kSome;
}

// Adds the probabilities of the lane's slots; kAll: without a cap, of pages that all rows see.
template <class C, bool kAll>
__device__ void add_probabilities(const RowParameters& p, const MassUnit<C>& unit,
                                  const MassMemory<C>& memory, int first,
                                  const float (&scores)[C::kGroups][4], float (&sums)[C::kGroups][2]) {
  const int query = first + static_cast<int>(threadIdx.x) % 4 * 2;
  const float2 lse = *reinterpret_cast<const float2*>(memory.lse + query);
  const float inverse_cap = 1.0f / p.soft_cap;
#pragma unroll
  for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      float scale = 1.0f;
      if constexpr (C::kType == KvType::kI8) scale = unit.scales[2 * i + odd];
      float low = scores[i][2 * odd] * scale;
      float high = scores[i][2 * odd + 1] * scale;
      if constexpr (kAll) {
        sums[i][odd] += mass_power(low - lse.x) + mass_power(high - lse.y);
        continue;
      }
      const int slot = unit.first_slot + 2 * i + odd;
      if (p.soft_cap > 0) {
        low = kMassLog2E * p.soft_cap * tanhf(low * inverse_cap);
        high = kMassLog2E * p.soft_cap * tanhf(high * inverse_cap);
      }
      const int32_t position = unit.position(p, slot);
      const auto seen = [&](int i_query) {
        return sees(memory.positions[i_query], position, p.window, unit.reference.sink);
      };
      if (seen(query)) sums[i][odd] += mass_power(low - lse.x);
      if (seen(query + 1)) sums[i][odd] += mass_power(high - lse.y);
    }
  }
}

// Queries of a tile, by eights.
struct MassShare {
  int begin;
  int step;
  int end;
};

template <class C, bool kAll>
__device__ void add_unit(const RowParameters& p, const MassUnit<C>& unit, const MassMemory<C>& memory,
                         const MassShare& share, float (&sums)[C::kGroups][2]) {
  for (int first = share.begin; first < share.end; first += share.step) {
    float scores[C::kGroups][4] = {};
    unit.multiply(memory, first, scores);
    add_probabilities<C, kAll>(p, unit, memory, first, scores, sums);
  }
}

// Adds a unit's sums to those of its page. What lies in slots that nobody sees may be anything.
template <class C>
__device__ void store_sums(const MassUnit<C>& unit, const float (&sums)[C::kGroups][2], float* page) {
#pragma unroll
  for (int i = 0; i < C::kGroups; ++i) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      float sum = sums[i][odd];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const int slot = unit.first_slot + 2 * i + odd;
      if (threadIdx.x % 4 == 0 && (unit.reference.mask >> slot & 1)) page[slot] += sum;
    }
  }
}

// One share of one unit of the run: item = share x units + unit.
template <class C>
__device__ void add_item(const RowParameters& p, const DevicePageRun& run, const MassUnit<C>& unit, int item,
                         int count, MassMemory<C>& memory) {
  const int units = run.count * C::kUnits;
  const int shares = max(1, C::kWarps / units);
  const int share = item / units;
  const int page = item % units / C::kUnits;
  const MassShare eights{8 * share, 8 * shares, (count + 7) / 8 * 8};
  const MassSight sight = sight_of(p, unit.reference, memory, count);
  if (sight == MassSight::kNothing) return;
  float sums[C::kGroups][2] = {};
  if (sight == MassSight::kAll && p.soft_cap == 0) {
    add_unit<C, true>(p, unit, memory, eights, sums);
  } else {
    add_unit<C, false>(p, unit, memory, eights, sums);
  }
  store_sums(unit, sums, memory.sums + (share * run.count + page) * kPageTokens);
}

template <class C>
__device__ void load_item(const RowParameters& p, const DevicePageRun& run, int item, MassUnit<C>& unit) {
  const int number = item % (run.count * C::kUnits);
  unit.load(p, p.plan.references[run.begin + number / C::kUnits], number % C::kUnits);
}

template <class C>
__global__ void __launch_bounds__(C::kWarps * 32, C::kBlocks)
    mass_matrix_kernel(RowParameters p, MassTarget target, const float* lse) {
  __shared__ MassMemory<C> memory;
  const DevicePageRun run = target.runs[blockIdx.x];
  const DeviceList list = target.shared[run.sequence];
  const DeviceList read = p.plan.lists[run.sequence];
  if (read.begin != list.begin || read.count != list.count) return;
  const MassQueries queries = mass_queries(target.sequences[run.sequence], p.heads / p.layout.kv_heads,
                                           static_cast<int>(blockIdx.z), static_cast<int>(gridDim.z));
  if (queries.begin >= queries.end) return;
  const int shift_row = p.plan.references[run.begin].shift_row;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int units = run.count * C::kUnits;
  const int shares = max(1, C::kWarps / units);
  const int items = units * shares;
  for (int i = threadIdx.x; i < kMostRunPages * kPageTokens; i += C::kWarps * 32) memory.sums[i] = 0;
  for (int first = queries.begin; first < queries.end; first += C::kQueries) {
    const int count = min(C::kQueries, queries.end - first);
    const int padded = (count + 7) / 8 * 8;
    __syncthreads();
    look_up_queries(p, lse, queries, first, padded, memory);
    MassUnit<C> unit;
    if (warp < items) load_item(p, run, warp, unit);  // on its way while queries are turned
    __syncthreads();
    turn_queries(p, shift_row, padded, memory);
    __syncthreads();
    for (int item = warp; item < items; item += C::kWarps) {
      if (item != warp) load_item(p, run, item, unit);
      add_item(p, run, unit, item, count, memory);
    }
  }
  __syncthreads();
  const int64_t part = int64_t{blockIdx.y} * gridDim.z + blockIdx.z;
  double* const to = target.sums + (part * target.references + run.begin) * kPageTokens;
  for (int i = threadIdx.x; i < run.count * kPageTokens; i += C::kWarps * 32) {
    double sum = 0;
    for (int share = 0; share < shares; ++share) {
      sum += static_cast<double>(memory.sums[share * run.count * kPageTokens + i]);
    }
    to[i] += sum;
  }
}

template <class C>
void launch_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(target.run_count), static_cast<unsigned>(attend.shape.kv_heads),
                  static_cast<unsigned>(target.query_parts));
  mass_matrix_kernel<C><<<grid, C::kWarps * 32, 0, stream>>>(row_parameters(attend), target, attend.lse);
}

}  // namespace rhapsode::kernels::cuda
