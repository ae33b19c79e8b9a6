// What attend_mass multiplies: a tile of queries in shared memory, turned into a frame, and units of a page's
// keys in registers.
#pragma once

#include <climits>

#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/row_math.cuh"

namespace rhapsode::kernels::cuda {

constexpr float kMassLog2E = 1.4426950408889634f;

// What is chosen at compile time. kQueries: of a tile, a multiple of 8.
template <KvType type, int dim, int queries, int blocks>
struct MassConfig {
  static constexpr KvType kType = type;
  static constexpr int kDim = dim;
  static constexpr int kQueries = queries;
  static constexpr int kBlocks = blocks;  // of a processor
  static constexpr int kWarps = 8;
  static constexpr int kSteps = dim / 16;     // of a product over all dimensions
  static constexpr int kGroups = 256 / dim;   // of 16 slots in a unit: what 64 registers hold
  static constexpr int kUnits = 4 / kGroups;  // of a page
  static constexpr int kUnitSlots = 16 * kGroups;
  static constexpr int kStride = dim / 2 + 8;  // words from query to query: fragments meet every bank once
};

template <class C>
struct MassMemory {
  uint32_t queries[C::kQueries][C::kStride];  // [query][step][t][half]: pairs (dim, dim + 4)
  int64_t offsets[C::kQueries];               // of the queries in `turned`
  int32_t positions[C::kQueries];
  float lse[C::kQueries];                   // in powers of two; infinite behind the last query
  float sums[kMostRunPages * kPageTokens];  // [share][unit][slot]
};

// The queries that a block works on: a row's heads of the group side by side.
struct MassQueries {
  DeviceSequence rows;
  int begin;
  int end;
};

__device__ inline MassQueries mass_queries(const DeviceSequence& rows, int group, int part, int parts) {
  const int count = rows.row_count * group;
  const int share = ((count + parts - 1) / parts + 7) / 8 * 8;
  return {rows, min(count, part * share), min(count, (part + 1) * share)};
}

// Positions, sums and places of a tile's queries, `padded` of them.
template <class C>
__device__ void look_up_queries(const RowParameters& p, const float* lse, const MassQueries& queries,
                                int first, int padded, MassMemory<C>& memory) {
  const int group = p.heads / p.layout.kv_heads;
  for (int i = threadIdx.x; i < padded; i += C::kWarps * 32) {
    const int query = first + i;
    if (query >= queries.end) {
      memory.lse[i] = INFINITY;
      memory.positions[i] = INT_MIN;
      memory.offsets[i] = -1;
      continue;
    }
    const int row = queries.rows.row_begin + query / group;
    const int64_t of_all = int64_t{row} * p.heads + static_cast<int>(blockIdx.y) * group + query % group;
    memory.lse[i] = lse[of_all] * kMassLog2E;
    memory.positions[i] = p.plan.positions[row];
    memory.offsets[i] = of_all * C::kDim;
  }
}

// The place of a dimension among a query's 16-bit numbers.
__device__ inline int place_of(int dim) {
  return dim / 16 * 16 + dim % 4 * 4 + dim / 8 % 2 * 2 + dim / 4 % 2;
}

// Turns the tile into a frame: a lane a pair of dimensions, a warp a query at a time.
template <class C>
__device__ void turn_queries(const RowParameters& p, int shift_row, int padded, MassMemory<C>& memory) {
  const int warp = threadIdx.x / 32;
  // With a cap scores are needed in natural units; else powers of two save a multiplication a score.
  const float factor = p.soft_cap > 0 ? p.scale : p.scale * kMassLog2E;
  const float* cosines = p.shift_angles + int64_t{shift_row} * 2 * p.pairs;
#pragma unroll
  for (int part = 0; part < C::kDim / 64; ++part) {
    const int pair = static_cast<int>(threadIdx.x) % 32 + 32 * part;
    const bool turns = pair < p.pairs;
    const bool halves = turns && !p.adjacent;
    const int a = halves ? pair : 2 * pair;
    const int b = halves ? pair + p.pairs : 2 * pair + 1;
    const float cosine = turns ? factor * cosines[pair] : factor;
    const float sine = turns ? factor * cosines[p.pairs + pair] : 0.0f;
    const int place_a = place_of(a);
    const int place_b = place_of(b);
#pragma unroll 4
    for (int i = warp; i < padded; i += C::kWarps) {
      const int64_t offset = memory.offsets[i];
      Pair x{0.0f, 0.0f};
      if (offset >= 0) x = {p.turned[offset + a], p.turned[offset + b]};
      const Pair turned = turn(x, cosine, sine);
      const uint32_t both = Narrow<C::kType>::pack(turned.a, turned.b);
      auto* to = reinterpret_cast<uint16_t*>(memory.queries[i]);
      to[place_a] = static_cast<uint16_t>(both);
      to[place_b] = static_cast<uint16_t>(both >> 16);
    }
  }
}

// The pairs of slots of a unit that a lane holds for one dimension.
template <class C>
__device__ uint4 load_unit(const std::byte* k, int unit) {
  using N = Narrow<C::kType>;
  if constexpr (C::kUnits == 1) {
    return N::widen(N::load(k));
  } else if constexpr (C::kType == KvType::kI8) {
    const uint32_t biased = __ldg(reinterpret_cast<const uint32_t*>(k) + unit) ^ 0x80808080u;
    return {N::two(biased, 0x4140), N::two(biased, 0x4342), 0, 0};
  } else {
    const uint2 words = load_8_bytes(k + 8 * unit);
    return {words.x, words.y, 0, 0};
  }
}

// A unit of a page's keys as A fragments: group i holds slots first_slot + 2i in its rows g, and the ones
// behind them in its rows g + 8.
template <class C>
struct MassUnit {
  uint32_t keys[C::kSteps][C::kGroups][4];
  DeviceReference reference;
  int first_slot;
  const float* scales;  // of int8 pages, from first_slot on

  __device__ void load(const RowParameters& p, const DeviceReference& page_reference, int unit) {
    constexpr int kElement = sizeof(typename Narrow<C::kType>::Eight) / 8;
    reference = page_reference;
    const DeviceHead page = device_head(p.layout, reference.data, p.layer, static_cast<int>(blockIdx.y));
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    first_slot = 8 * g + 2 * C::kGroups * unit;
    scales = page.k_scale + first_slot;
    const std::byte* k =
        page.k + (int64_t{g / 2} * C::kDim * kKeyGroup + t * kKeyGroup + g % 2 * 8) * kElement;
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      uint4 loads[4];
#pragma unroll
      for (int c = 0; c < 4; ++c)
        loads[c] = load_unit<C>(k + (16 * step + 4 * c) * kKeyGroup * kElement, unit);
#pragma unroll
      for (int i = 0; i < C::kGroups; ++i) fragment_of(loads, i, keys[step][i]);
    }
  }

  __device__ int32_t position(const RowParameters& p, int slot) const {
    if (reference.gathered < 0) return reference.first + slot;
    return p.plan.gathered[int64_t{reference.gathered} * kPageTokens + slot];
  }

  // Against queries `first` to `first` + 7 of the tile: slots first_slot + 2i + odd of queries 2t and 2t + 1
  // are scores[i][2 * odd] and the one behind it.
  __device__ void multiply(const MassMemory<C>& memory, int first, float (&scores)[C::kGroups][4]) const {
    const int g = threadIdx.x % 32 / 4;
    const int t = threadIdx.x % 4;
    const uint32_t* query = memory.queries[first + g] + 2 * t;
#pragma unroll
    for (int step = 0; step < C::kSteps; ++step) {
      const uint2 pair = *reinterpret_cast<const uint2*>(query + 8 * step);
#pragma unroll
      for (int i = 0; i < C::kGroups; ++i) {
        Narrow<C::kType>::multiply(scores[i], keys[step][i], pair.x, pair.y);
      }
    }
  }
};

}  // namespace rhapsode::kernels::cuda
