#include <cmath>

#include "kernels/cuda/top_logits.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kGroups = 1024;  // of a row
constexpr int kWarp = 32;
constexpr int kBlockGroups = 8;  // neighbours, so that a warp reads whole runs of memory
constexpr int kSharers = 32;     // threads that read a group
constexpr int kScanThreads = kBlockGroups * kSharers;
constexpr int kScanBlocks = kGroups / kBlockGroups;
constexpr int kFound = 1024;    // logits that are sorted at once
constexpr int kBoundBits = 20;  // of a bound that need not be exact: sign, exponent, 11 of the fraction

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

__device__ double exp_of(float logit, float highest) {
  return exp(static_cast<double>(logit) - static_cast<double>(highest));
}

// Exponentials that count from `from` as they count from `to`, the higher one.
__device__ double rescaled(double sum, float from, float to) {
  return from == to || !(from > -INFINITY) ? sum : sum * exp_of(from, to);
}

__device__ double warp_sum(double x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}

// Some pieces of a row: everything of them is loaded before anything is looked at.
template <int kWidth, int kPieces>
__device__ void scan_pieces(const float* row, int vocabulary, int first, Partial& own) {
  float x[kPieces * kWidth];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    load_piece<kWidth>(row, (first + i * kGroups * kSharers) * kWidth, vocabulary, x + i * kWidth);
  }
  float highest = own.highest;
#pragma unroll
  for (const float logit : x) {
    highest = fmaxf(highest, logit);
    own.broken |= static_cast<int32_t>(!(logit < INFINITY));
    own.possible += static_cast<int32_t>(logit > -INFINITY);
  }
  if (!(highest > -INFINITY)) return;
  own.sum = rescaled(own.sum, own.highest, highest);
  own.highest = highest;
#pragma unroll
  for (const float logit : x) {
    if (logit > -INFINITY) own.sum += exp_of(logit, highest);
  }
}

// Block b has groups 8 b to 8 b + 7; piece p of a row is in group p % kGroups.
template <int kWidth, int kPieces>
__global__ void __launch_bounds__(kScanThreads) scan_kernel(TopLogitsCall call, Scan* scans) {
  constexpr int kWarps = kScanThreads / kWarp;
  __shared__ float group_highest[kWarps][kBlockGroups];
  __shared__ Partial partials[kWarps];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int group = static_cast<int>(blockIdx.x) * kBlockGroups + threadIdx.x % kBlockGroups;
  const float* row = call.logits + blockIdx.y * call.stride;
  Partial own{0.0, -INFINITY, 0, 0, 0};
  const int pieces = (call.vocabulary + kWidth - 1) / kWidth;
  for (int p = group + kGroups * static_cast<int>(threadIdx.x / kBlockGroups); p < pieces;
       p += kGroups * kSharers * kPieces) {
    scan_pieces<kWidth, kPieces>(row, call.vocabulary, p, own);
  }
  __syncwarp();
  float highest = own.highest;
  for (int lanes = kWarp / 2; lanes >= kBlockGroups; lanes /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, lanes));
  }
  if (lane < kBlockGroups) group_highest[warp][lane] = highest;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) highest = fmaxf(highest, group_highest[w][lane % kBlockGroups]);
  if (threadIdx.x < kBlockGroups) scans[blockIdx.y].highest[group] = highest;
  for (int lanes = kBlockGroups / 2; lanes > 0; lanes /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, lanes));
  }
  const double sum = warp_sum(rescaled(own.sum, own.highest, highest));
  const int possible = __reduce_add_sync(~0u, own.possible);
  const auto broken = static_cast<int32_t>(__any_sync(~0u, own.broken));
  if (lane == 0) partials[warp] = {sum, highest, possible, broken, 0};
  __syncthreads();
  if (threadIdx.x != 0) return;
  own = partials[0];
  for (int w = 1; w < kWarps; ++w) {
    own.sum += partials[w].sum;
    own.possible += partials[w].possible;
    own.broken |= partials[w].broken;
  }
  scans[blockIdx.y].partials[blockIdx.x] = own;
}

// The largest key of `bits` bits that `wanted` of the threads' keys reach, bit by bit. `count(key)` is the
// block's.
template <typename Count>
__device__ uint32_t largest_reached(int wanted, int bits, Count count) {
  uint32_t key = 0;
  for (int bit = 31; bit >= 32 - bits; --bit) {
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
  constexpr int kBatch = 3;  // pieces in flight
  const int pieces = (vocabulary + kWidth - 1) / kWidth;
  const int pieces_of_group = (pieces + kGroups - 1) / kGroups;
  const int count = found.group_count * pieces_of_group;
  for (int begin = threadIdx.x; begin < count; begin += kBatch * kGroups) {
    float x[kBatch * kWidth];
    int at[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int i = begin + b * kGroups;
      const int piece =
          i < count ? found.groups[i / pieces_of_group] + i % pieces_of_group * kGroups : pieces;
      at[b] = piece * kWidth;
      load_piece<kWidth>(row, at[b], vocabulary, x + b * kWidth);
    }
#pragma unroll
    for (int j = 0; j < kBatch * kWidth; ++j) {
      const uint32_t key = key_of(x[j]);
      if (key < bound || x[j] == -INFINITY) continue;
      const int place = atomicAdd(&found.count, 1);
      if (place < kFound) found.keys[place] = found_key(key, at[j / kWidth] + j % kWidth);
    }
  }
}

// How many of a row's logits reach a key, for all threads.
__device__ int count_reaching(const float* row, int vocabulary, uint32_t key, Found& found) {
  int own = 0;
#pragma unroll 8
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
      largest_reached(wanted, 32, [&](uint32_t key) { return count_reaching(row, vocabulary, key, found); });
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

// Bitonic, a key a thread, largest first: the thread's key once all are in order. Keys of one warp are
// exchanged without the other warps.
__device__ unsigned long long sorted_key(Found& found) {
  int length = kWarp;
  while (length < found.count) length *= 2;
  const int i = static_cast<int>(threadIdx.x);
  unsigned long long key = i < found.count ? found.keys[i] : 0;
  for (int run = 2; run <= length; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      unsigned long long other = 0;
      if (distance < kWarp) {
        other = __shfl_xor_sync(~0u, key, distance);
      } else {
        __syncthreads();
        if (i < length) found.keys[i] = key;
        __syncthreads();
        if (i < length) other = found.keys[i ^ distance];
      }
      const bool larger = ((i & distance) == 0) == ((i & run) == 0);
      key = larger == (key > other) ? key : other;
    }
  }
  return key;
}

// What the partials of a row come to, for all threads; `highest` is the row's.
__device__ Partial total_of(const Partial& own, float highest, Found& found) {
  constexpr int kWarps = kScanBlocks / kWarp;
  __shared__ Partial parts[kWarps];
  const int lane = threadIdx.x % kWarp;
  if (threadIdx.x < kScanBlocks) {
    const double sum = warp_sum(rescaled(own.sum, own.highest, highest));
    const int possible = __reduce_add_sync(~0u, own.possible);
    const auto broken = static_cast<int32_t>(__any_sync(~0u, own.broken));
    if (lane == 0) parts[threadIdx.x / kWarp] = {sum, highest, possible, broken, 0};
  }
  if (threadIdx.x == 0) found.count = found.group_count = 0;
  __syncthreads();
  Partial total = parts[0];
  for (int warp = 1; warp < kWarps; ++warp) {
    total.sum += parts[warp].sum;
    total.possible += parts[warp].possible;
    total.broken |= parts[warp].broken;
  }
  return total;
}

// One block a row, one thread a group.
template <int kWidth>
__global__ void __launch_bounds__(kGroups) choose_kernel(TopLogitsCall call, const Scan* scans) {
  __shared__ Found found;
  __shared__ float warp_highest[kGroups / kWarp];
  const Scan& scan = scans[blockIdx.x];
  const float* row = call.logits + blockIdx.x * call.stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const Partial own = scan.partials[thread % kScanBlocks];
  const float highest = scan.highest[thread];
  const uint32_t own_key = key_of(highest);
  const uint32_t warp_key = __reduce_max_sync(~0u, own_key);
  if (lane == 0) warp_highest[thread / kWarp] = of_key(warp_key);
  __syncthreads();
  const float row_highest = of_key(__reduce_max_sync(~0u, key_of(warp_highest[lane])));
  const Partial all = total_of(own, row_highest, found);
  const bool broken = all.broken != 0;
  const int wanted = broken ? 0 : min(kTopLogits, all.possible);
  TopRow& out = call.out[blockIdx.x];
  if (thread == 0) {
    out.exp_sum = broken ? 0.0 : all.sum;
    out.count = wanted;
    out.possible = all.possible;
    out.broken = broken;
  }
  if (wanted == 0) return;
  const uint32_t bound = largest_reached(wanted, kBoundBits, [&](uint32_t key) {
    return __syncthreads_count(static_cast<int>(own_key >= key));
  });
  if (own_key >= bound && highest > -INFINITY) found.groups[atomicAdd(&found.group_count, 1)] = thread;
  __syncthreads();
  collect<kWidth>(row, call.vocabulary, bound, found);
  __syncthreads();
  if (found.count > kFound) collect_exactly(row, call.vocabulary, wanted, found);
  const unsigned long long key = sorted_key(found);
  if (thread >= wanted) return;
  out.tokens[thread] = static_cast<int32_t>(~static_cast<uint32_t>(key));
  out.logits[thread] = of_key(static_cast<uint32_t>(key >> 32));
}

template <int kWidth, int kPieces>
void launch(const TopLogitsCall& call, cudaStream_t stream) {
  auto* scans = static_cast<Scan*>(call.workspace);
  const auto rows = static_cast<unsigned>(call.rows);
  scan_kernel<kWidth, kPieces><<<dim3(kScanBlocks, rows), kScanThreads, 0, stream>>>(call, scans);
  choose_kernel<kWidth><<<rows, kGroups, 0, stream>>>(call, scans);
}

}  // namespace

size_t top_logits_workspace_bytes(int rows) {
  return static_cast<size_t>(rows) * sizeof(Scan);
}

void find_top_logits(const TopLogitsCall& call, cudaStream_t stream) {
  if (call.rows == 0) return;
  const bool whole = call.stride % 4 == 0 && reinterpret_cast<uintptr_t>(call.logits) % 16 == 0;
  if (!whole) return launch<1, 8>(call, stream);
  launch<8, 1>(call, stream);
}

}  // namespace rhapsode::kernels::cuda
