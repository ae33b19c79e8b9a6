#include <cmath>

#include "kernels/cuda/top_logits.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kGroups = 1024;  // of a row
constexpr int kWarp = 32;
constexpr int kSharers = 8;  // threads that read a group: one of each warp of a block
constexpr int kScanBlocks = kGroups / kWarp;
constexpr int kFound = 1024;  // logits that are sorted at once

struct Partial {
  double sum;  // of exp(logit - highest)
  float highest;
  int32_t possible;
  int32_t broken;
  int32_t padding;
};

// What the first kernel leaves of a row.
struct Scan {
  float highest[kGroups];
  Partial partials[kScanBlocks];
};

// Orders floats as unsigned numbers; both zeros are one.
__device__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ float of_key(uint32_t key) {
  return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}

// kWidth logits of a row from `at` on; minus infinity behind its end. Whole float4s where kWidth says so:
// rows are then padded to them.
template <int kWidth>
__device__ void load_piece(const float* row, int at, int vocabulary, float* x) {
  if constexpr (kWidth % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      float4 four{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
      if (at + i < vocabulary) four = *reinterpret_cast<const float4*>(row + at + i);
      x[i] = four.x;
      x[i + 1] = at + i + 1 < vocabulary ? four.y : -INFINITY;
      x[i + 2] = at + i + 2 < vocabulary ? four.z : -INFINITY;
      x[i + 3] = at + i + 3 < vocabulary ? four.w : -INFINITY;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) x[i] = at + i < vocabulary ? row[at + i] : -INFINITY;
  }
}

__device__ void add(Partial& to, double sum, float highest) {
  if (highest > to.highest) {
    to.sum *= exp(static_cast<double>(to.highest) - static_cast<double>(highest));
    to.highest = highest;
  }
  if (highest > -INFINITY) {
    to.sum += sum * exp(static_cast<double>(highest) - static_cast<double>(to.highest));
  }
}

__device__ Partial merged(Partial a, const Partial& b) {
  add(a, b.sum, b.highest);
  a.possible += b.possible;
  a.broken |= b.broken;
  return a;
}

// Of the whole warp, in lane 0.
__device__ Partial warp_merged(Partial own) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    Partial other;
    other.sum = __shfl_down_sync(~0u, own.sum, lanes);
    other.highest = __shfl_down_sync(~0u, own.highest, lanes);
    other.possible = __shfl_down_sync(~0u, own.possible, lanes);
    other.broken = __shfl_down_sync(~0u, own.broken, lanes);
    own = merged(own, other);
  }
  return own;
}

// Some pieces of a row: everything of them is loaded before anything is looked at.
template <int kWidth, int kPieces>
__device__ void scan_pieces(const float* row, int vocabulary, int first, Partial& own, float& group) {
  float x[kPieces * kWidth];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    load_piece<kWidth>(row, (first + i * kGroups * kSharers) * kWidth, vocabulary, x + i * kWidth);
  }
  float highest = -INFINITY;
#pragma unroll
  for (const float logit : x) {
    highest = fmaxf(highest, logit);
    own.broken |= static_cast<int32_t>(!(logit < INFINITY));
    own.possible += static_cast<int32_t>(logit > -INFINITY);
  }
  group = fmaxf(group, highest);
  if (!(highest > -INFINITY)) return;
  double sum = 0;
#pragma unroll
  for (const float logit : x) {
    if (logit > -INFINITY) sum += exp(static_cast<double>(logit) - static_cast<double>(highest));
  }
  add(own, sum, highest);
}

// Lane l of every warp of block b has group 32 b + l; piece p of a row is in group p % kGroups.
template <int kWidth, int kPieces>
__global__ void __launch_bounds__(kWarp* kSharers) scan_kernel(TopLogitsCall call, Scan* scans) {
  __shared__ float highest[kSharers][kWarp];
  __shared__ Partial partials[kSharers];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int group = static_cast<int>(blockIdx.x) * kWarp + lane;
  const float* row = call.logits + blockIdx.y * call.stride;
  Partial own{0.0, -INFINITY, 0, 0, 0};
  float group_highest = -INFINITY;
  const int pieces = (call.vocabulary + kWidth - 1) / kWidth;
  for (int p = group + kGroups * warp; p < pieces; p += kGroups * kSharers * kPieces) {
    scan_pieces<kWidth, kPieces>(row, call.vocabulary, p, own, group_highest);
  }
  __syncwarp();
  own = warp_merged(own);
  highest[warp][lane] = group_highest;
  if (lane == 0) partials[warp] = own;
  __syncthreads();
  if (warp != 0) return;
  for (int w = 1; w < kSharers; ++w) group_highest = fmaxf(group_highest, highest[w][lane]);
  Scan& scan = scans[blockIdx.y];
  scan.highest[group] = group_highest;
  if (lane != 0) return;
  for (int w = 1; w < kSharers; ++w) own = merged(own, partials[w]);
  scan.partials[blockIdx.x] = own;
}

// The largest key that `wanted` of the threads' keys reach, bit by bit. `count(key)` is the block's.
template <typename Count>
__device__ uint32_t largest_reached(int wanted, Count count) {
  uint32_t key = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t trial = key | 1u << bit;
    if (count(trial) >= wanted) key = trial;
  }
  return key;
}

struct Found {
  unsigned long long keys[kFound];  // the logit's key, then the token's complement: a larger one is before
  int groups[kGroups];
  int group_count;
  int count;
  int warp_counts[kGroups / kWarp];
};

__device__ unsigned long long found_key(uint32_t key, int token) {
  return static_cast<unsigned long long>(key) << 32 | ~static_cast<uint32_t>(token);
}

// All logits of the groups that reach `bound`; more may reach it than there is room for.
template <int kWidth>
__device__ void collect(const float* row, int vocabulary, uint32_t bound, Found& found) {
  const int pieces = (vocabulary + kWidth - 1) / kWidth;
  const int pieces_of_group = (pieces + kGroups - 1) / kGroups;
  // Lanes share out the pieces of several groups.
  for (int i = threadIdx.x; i < found.group_count * pieces_of_group; i += kGroups) {
    const int piece = found.groups[i / pieces_of_group] + i % pieces_of_group * kGroups;
    float x[kWidth];
    load_piece<kWidth>(row, piece * kWidth, vocabulary, x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const uint32_t key = key_of(x[j]);
      if (key < bound || x[j] == -INFINITY) continue;
      const int at = atomicAdd(&found.count, 1);
      if (at < kFound) found.keys[at] = found_key(key, piece * kWidth + j);
    }
  }
}

// How many of a row's logits reach a key, for all threads.
__device__ int count_reaching(const float* row, int vocabulary, uint32_t key, Found& found) {
  int own = 0;
  for (int i = threadIdx.x; i < vocabulary; i += kGroups) {
    own += static_cast<int>(row[i] > -INFINITY && key_of(row[i]) >= key);
  }
  own = __reduce_add_sync(~0u, own);
  if (threadIdx.x % kWarp == 0) found.warp_counts[threadIdx.x / kWarp] = own;
  __syncthreads();
  int total = 0;
  for (const int count : found.warp_counts) total += count;
  __syncthreads();
  return total;
}

// Exactly the wanted ones: all that are larger than the last of them, and its equals by token.
__device__ void collect_exactly(const float* row, int vocabulary, int wanted, Found& found) {
  const uint32_t last =
      largest_reached(wanted, [&](uint32_t key) { return count_reaching(row, vocabulary, key, found); });
  if (threadIdx.x == 0) found.count = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < vocabulary; i += kGroups) {
    const uint32_t key = key_of(row[i]);
    if (key > last) found.keys[atomicAdd(&found.count, 1)] = found_key(key, i);
  }
  __syncthreads();
  int taken = found.count;
  for (int begin = 0; begin < vocabulary && taken < wanted; begin += kGroups) {
    const int i = begin + static_cast<int>(threadIdx.x);
    const bool equal = i < vocabulary && row[i] > -INFINITY && key_of(row[i]) == last;
    const unsigned lanes = __ballot_sync(~0u, equal);
    if (threadIdx.x % kWarp == 0) found.warp_counts[threadIdx.x / kWarp] = __popc(lanes);
    __syncthreads();
    int at = taken + __popc(lanes & ((1u << threadIdx.x % kWarp) - 1));
    for (unsigned warp = 0; warp < kGroups / kWarp; ++warp) {
      if (warp < threadIdx.x / kWarp) at += found.warp_counts[warp];
      taken += found.warp_counts[warp];
    }
    if (equal && at < wanted) found.keys[at] = found_key(last, i);
    __syncthreads();
  }
  if (threadIdx.x == 0) found.count = wanted;
  __syncthreads();
}

// Bitonic, largest first; stages within a warp's keys need no other warp.
__device__ void sort_found(Found& found) {
  int length = kWarp;
  while (length < found.count) length *= 2;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= found.count && i < length) found.keys[i] = 0;
  __syncthreads();
  for (int run = 2; run <= length; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      const int j = i ^ distance;
      if (i < length && j > i) {
        const unsigned long long a = found.keys[i];
        const unsigned long long b = found.keys[j];
        const bool falls = (i & run) == 0;
        if (falls ? a < b : a > b) {
          found.keys[i] = b;
          found.keys[j] = a;
        }
      }
      if (distance > kWarp / 2 || distance == 1) {
        __syncthreads();
      } else {
        __syncwarp();
      }
    }
  }
}

// One block a row, one thread a group.
template <int kWidth>
__global__ void __launch_bounds__(kGroups) choose_kernel(TopLogitsCall call, const Scan* scans) {
  __shared__ Found found;
  __shared__ Partial all;
  const Scan& scan = scans[blockIdx.x];
  const float* row = call.logits + blockIdx.x * call.stride;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kWarp) {
    const Partial row_partial = warp_merged(scan.partials[thread]);
    if (thread == 0) {
      all = row_partial;
      found.count = found.group_count = 0;
    }
  }
  const float highest = scan.highest[thread];
  const uint32_t own_key = key_of(highest);
  __syncthreads();
  const bool broken = all.broken != 0;
  const int wanted = broken ? 0 : min(kTopLogits, all.possible);
  if (wanted > 0) {
    const uint32_t bound = largest_reached(
        wanted, [&](uint32_t key) { return __syncthreads_count(static_cast<int>(own_key >= key)); });
    if (own_key >= bound && highest > -INFINITY) found.groups[atomicAdd(&found.group_count, 1)] = thread;
    __syncthreads();
    collect<kWidth>(row, call.vocabulary, bound, found);
    __syncthreads();
    if (found.count > kFound) collect_exactly(row, call.vocabulary, wanted, found);
    sort_found(found);
  }
  TopRow& out = call.out[blockIdx.x];
  if (thread == 0) {
    out.exp_sum = broken ? 0.0 : all.sum;
    out.count = wanted;
    out.possible = all.possible;
    out.broken = broken;
  }
  if (thread >= wanted) return;
  const unsigned long long key = found.keys[thread];
  out.tokens[thread] = static_cast<int32_t>(~static_cast<uint32_t>(key));
  out.logits[thread] = of_key(static_cast<uint32_t>(key >> 32));
}

template <int kWidth, int kPieces>
void launch(const TopLogitsCall& call, cudaStream_t stream) {
  auto* scans = static_cast<Scan*>(call.workspace);
  const auto rows = static_cast<unsigned>(call.rows);
  scan_kernel<kWidth, kPieces><<<dim3(kScanBlocks, rows), kWarp * kSharers, 0, stream>>>(call, scans);
  choose_kernel<kWidth><<<rows, kGroups, 0, stream>>>(call, scans);
}

}  // namespace

size_t top_logits_workspace_bytes(int rows) {
  return static_cast<size_t>(rows) * sizeof(Scan);
}

void find_top_logits(const TopLogitsCall& call, cudaStream_t stream) {
  if (call.rows == 0) return;
  const bool whole = call.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.logits) % 16 == 0;
  if (!whole) return launch<1, 16>(call, stream);
  launch<8, 3>(call, stream);  // all of a thread's share of 152k logits at once
}

}  // namespace rhapsode::kernels::cuda
