#include "kernels/cuda/code_scan.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr int kScanThreads = 256;
constexpr int kWarpsOfABlock = kScanThreads / 32;

// One warp a chunk: its words go to their places, its set bits are counted.
__global__ void pack_kernel(CodeShape shape, RawCodes raw, CodeSegment to) {
  const int64_t i = int64_t{blockIdx.x} * kWarpsOfABlock + threadIdx.x / 32;
  if (i >= raw.chunks) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t at = raw.at + i;
  const int64_t group = at / kGroupChunks;
  const int chunk = static_cast<int>(at % kGroupChunks);
  const int words = shape.code_words();
  int ones = 0;
  for (int word = lane; word < shape.steps() * kStepWords; word += 32) {
    uint32_t bits = word < words ? raw.words[i * words + word] : 0u;
    // Bits behind the last dimension are not the code's.
    const int left = shape.dimensions - word * 32;
    if (left < 32) bits &= left > 0 ? (1u << left) - 1u : 0u;
    to.groups[group * static_cast<int64_t>(shape.group_words()) + code_word_at(shape, chunk, word)] = bits;
    ones += __popc(bits);
  }
  ones = __reduce_add_sync(~0u, ones);
  if (lane != 0) return;
  to.ones[at] = static_cast<int16_t>(ones);
  const uint32_t slot = raw.slots[i];
  if (chunk == 0) to.first_slots[group] = static_cast<int32_t>(slot & ~kLastOfPassage);
  if (slot & kLastOfPassage) atomicOr(to.ends + group, 1u << chunk);
}

// Common bits of 16 rows and 8 columns: of a pair of steps, and of one step.
__device__ inline void count_common_bits(int (&c)[4], const uint4& a, uint32_t low, uint32_t high) {
  asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(low), "r"(high));
}
__device__ inline void count_common_bits(int (&c)[4], const uint2& a, uint32_t column) {
  asm("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a.x), "r"(a.y), "r"(column));
}

__device__ inline uint4 load_once(const uint4* address) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(address));
  return x;
}

__device__ inline void prefetch_to_l2(const uint4* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

struct ScanParameters {
  const uint4* groups;
  const uint32_t* ones;  // pairs
  const uint32_t* ends;
  const int32_t* first_slots;
  const uint4* fragments;
  int32_t* maxima;
  int64_t group_count;
  int32_t stride;
  int32_t blocks;
  int32_t row_groups;
  uint32_t last_mask;  // chunks of the last group
};

template <int kSteps>
constexpr int kPairsOf = (kSteps + 1) / 2;

// Sums of 2^b popcount(plane_b & code) of one block of steps, added to `sums` [tile][element of a product].
template <int kSteps>
__device__ inline void add_block(const uint4 (&codes)[kSteps], const uint4* fragments, int lane,
                                 int (&sums)[kGroupTiles][4]) {
  int counts[kGroupTiles][4] = {};
#pragma unroll
  for (int plane = 0; plane < kCodePlanes; ++plane) {
#pragma unroll
    for (int pair = 0; pair < kSteps / 2; ++pair) {
      const uint4 a = fragments[(plane * kPairsOf<kSteps> + pair) * 32 + lane];
      const uint4& first = codes[2 * pair];
      const uint4& second = codes[2 * pair + 1];
      count_common_bits(counts[0], a, first.x, first.y);
      count_common_bits(counts[1], a, first.z, first.w);
      count_common_bits(counts[2], a, second.x, second.y);
      count_common_bits(counts[3], a, second.z, second.w);
    }
    if constexpr (kSteps % 2 == 1) {
      const uint4& last = codes[kSteps - 1];
      const uint4 whole = fragments[(plane * kPairsOf<kSteps> + kSteps / 2) * 32 + lane];
      const uint2 a{whole.x, whole.y};  // the other half is zero
      count_common_bits(counts[0], a, last.x);
      count_common_bits(counts[1], a, last.y);
      count_common_bits(counts[2], a, last.z);
      count_common_bits(counts[3], a, last.w);
    }
#pragma unroll
    for (auto& tile : counts) {
#pragma unroll
      for (int& count : tile) count <<= plane + 1 < kCodePlanes ? 1 : 0;
    }
  }
#pragma unroll
  for (int tile = 0; tile < kGroupTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[tile][e] += counts[tile][e];
  }
}

// Joins a group's values into the maxima of its passages: each is a run of chunks that ends with a set bit.
__device__ inline void raise_maxima(const int (&values)[kGroupTiles][4], uint32_t ends, uint32_t used,
                                    int32_t* maxima, int32_t stride, int lane) {
  const int t = lane % 4;
  uint32_t left = used;
  while (left != 0) {
    // The chunks up to the next end, that one included; all that is left without one.
    const uint32_t end = ends & left;
    const uint32_t run = end != 0 ? left & ((end & (0u - end)) * 2u - 1u) : left;
    int low = kNoMaximum;
    int high = kNoMaximum;
    const uint32_t mine = run >> (2 * t);
#pragma unroll
    for (int tile = 0; tile < kGroupTiles; ++tile) {
      if (mine >> (tile * kTileChunks) & 1u) {
        low = max(low, values[tile][0]);
        high = max(high, values[tile][2]);
      }
      if (mine >> (tile * kTileChunks + 1) & 1u) {
        low = max(low, values[tile][1]);
        high = max(high, values[tile][3]);
      }
    }
    low = max(low, __shfl_xor_sync(~0u, low, 1));
    high = max(high, __shfl_xor_sync(~0u, high, 1));
    low = max(low, __shfl_xor_sync(~0u, low, 2));
    high = max(high, __shfl_xor_sync(~0u, high, 2));
    if (t < 2) atomicMax(maxima + t * 8 + lane / 4, t == 0 ? low : high);
    maxima += stride;
    left &= ~run;
  }
}

// Sums to what maxima are made of: 2 sum 2^b popcount - 15 popcount(code).
__device__ inline void subtract_ones(int (&sums)[kGroupTiles][4], const uint32_t (&ones)[kGroupTiles]) {
#pragma unroll
  for (int tile = 0; tile < kGroupTiles; ++tile) {
    const int even = static_cast<int>(ones[tile] & 0xffffu) * 15;
    const int odd = static_cast<int>(ones[tile] >> 16) * 15;
    sums[tile][0] = 2 * sums[tile][0] - even;
    sums[tile][1] = 2 * sums[tile][1] - odd;
    sums[tile][2] = 2 * sums[tile][2] - even;
    sums[tile][3] = 2 * sums[tile][3] - odd;
  }
}

// A warp takes a run of groups. Codes of one block of steps stay in registers for all row groups; of several,
// they are read again.
template <int kSteps, bool kOneBlock>
__global__ void __launch_bounds__(kScanThreads, kSteps <= 12 ? 2 : 1) scan_kernel(ScanParameters p) {
  extern __shared__ uint4 fragments[];  // [row groups][blocks][planes][pairs][lanes]
  constexpr int kBlockFragments = kCodePlanes * kPairsOf<kSteps> * 32;
  const int blocks = kOneBlock ? 1 : p.blocks;
  for (int i = threadIdx.x; i < p.row_groups * blocks * kBlockFragments; i += kScanThreads) {
    fragments[i] = p.fragments[i];
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t warp = int64_t{blockIdx.x} * kWarpsOfABlock + threadIdx.x / 32;
  const int64_t warps = int64_t{gridDim.x} * kWarpsOfABlock;
  const int64_t end = p.group_count * (warp + 1) / warps;
  for (int64_t group = p.group_count * warp / warps; group < end; ++group) {
    const uint4* from = p.groups + group * blocks * kSteps * 32;
    uint4 codes[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) codes[step] = load_once(from + step * 32 + lane);
    if (group + 1 < end) {
      // A cache line is eight units: those of the next group are on their way meanwhile.
      for (int line = lane; line < blocks * kSteps * 4; line += 32) {
        prefetch_to_l2(from + (blocks * kSteps * 4 + line) * 8);
      }
    }
    uint32_t ones[kGroupTiles];
#pragma unroll
    for (int tile = 0; tile < kGroupTiles; ++tile) ones[tile] = p.ones[group * 16 + tile * 4 + lane % 4];
    const uint32_t ends = p.ends[group];
    const uint32_t used = group + 1 < p.group_count ? ~0u : p.last_mask;
    int32_t* maxima = p.maxima + int64_t{p.first_slots[group]} * p.stride;
    for (int rows = 0; rows < p.row_groups; ++rows) {
      int sums[kGroupTiles][4] = {};
      for (int block = 0; block < blocks; ++block) {
        if (!kOneBlock && rows + block > 0) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) codes[step] = from[(block * kSteps + step) * 32 + lane];
        }
        add_block<kSteps>(codes, fragments + (rows * blocks + block) * kBlockFragments, lane, sums);
      }
      subtract_ones(sums, ones);
      raise_maxima(sums, ends, used, maxima + rows * kRowGroupTokens, p.stride, lane);
    }
  }
}

template <int kSteps, bool kOneBlock>
cudaError_t launch_scan(const ScanCall& call, cudaStream_t stream) {
  const CodeSegment& segment = call.segment;
  ScanParameters p;
  p.groups = reinterpret_cast<const uint4*>(segment.groups);
  p.ones = reinterpret_cast<const uint32_t*>(segment.ones);
  p.ends = segment.ends;
  p.first_slots = segment.first_slots;
  p.fragments = reinterpret_cast<const uint4*>(call.fragments);
  p.maxima = call.maxima;
  p.group_count = (segment.chunks + kGroupChunks - 1) / kGroupChunks;
  p.stride = call.stride;
  p.blocks = call.shape.blocks;
  p.row_groups = call.row_groups;
  const int in_last = static_cast<int>(segment.chunks % kGroupChunks);
  p.last_mask = in_last == 0 ? ~0u : (1u << in_last) - 1u;
  const size_t shared = scan_shared_bytes(call.shape, call.row_groups);
  const auto kernel = scan_kernel<kSteps, kOneBlock>;
  cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  int device = 0;
  int processors = 0;
  int resident = 0;
  if (code == cudaSuccess) code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (code == cudaSuccess) {
    code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kScanThreads, shared);
  }
  if (code != cudaSuccess) return code;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t wanted = (p.group_count + kWarpsOfABlock - 1) / kWarpsOfABlock;
  const int64_t blocks = min(wanted, int64_t{processors} * resident);
  kernel<<<static_cast<unsigned>(blocks), kScanThreads, shared, stream>>>(p);
  return cudaGetLastError();
}

// --- Choosing the best ---

constexpr int kSelectThreads = 256;
constexpr int kSelectBlocks = 264;  // of a question
constexpr int kBinsOfAThread = kHistogramBins / kSelectThreads;

// Digits of a key, highest first: 11, 11 and 10 bits.
__device__ constexpr int shift_of(int digit) {
  return digit == 0 ? 21 : digit == 1 ? 10 : 0;
}
__device__ inline uint32_t digit_of(uint32_t key, int digit) {
  return key >> shift_of(digit) & (digit == 2 ? 1023u : 2047u);
}

struct Threshold {
  uint32_t prefix = 0;  // the digits known so far of the last key to be chosen
  uint32_t wanted = 0;  // keys with these digits that are still to be chosen
  bool everything = false;
};

// Looks for the digit of the last key to be chosen in a histogram; all threads of the block call it.
__device__ inline void narrow(const uint32_t* histogram, int digit, Threshold& threshold) {
  __shared__ uint32_t sums[kSelectThreads];
  __shared__ uint32_t chosen[2];
  __shared__ bool none;
  if (threshold.everything) return;
  const int mine = kHistogramBins - kBinsOfAThread * (static_cast<int>(threadIdx.x) + 1);  // highest first
  uint32_t sum = 0;
  for (int i = 0; i < kBinsOfAThread; ++i) sum += histogram[mine + i];
  sums[threadIdx.x] = sum;
  if (threadIdx.x == 0) none = true;
  __syncthreads();
  for (int reach = 1; reach < kSelectThreads; reach *= 2) {
    const uint32_t other = static_cast<int>(threadIdx.x) >= reach ? sums[threadIdx.x - reach] : 0u;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  uint32_t before = sums[threadIdx.x] - sum;
  if (before < threshold.wanted && sums[threadIdx.x] >= threshold.wanted) {
    for (int i = kBinsOfAThread - 1; i >= 0; --i) {
      const uint32_t here = histogram[mine + i];
      if (before + here >= threshold.wanted) {
        chosen[0] = static_cast<uint32_t>(mine + i);
        chosen[1] = threshold.wanted - before;
        none = false;
        break;
      }
      before += here;
    }
  }
  __syncthreads();
  if (none) {
    threshold.everything = true;  // fewer are visible than wanted
  } else {
    threshold.prefix |= chosen[0] << shift_of(digit);
    threshold.wanted = chosen[1];
  }
  __syncthreads();
}

__device__ inline uint32_t key_of(float score) {
  const uint32_t bits = __float_as_uint(score + 0.0f);  // minus zero is zero
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Scores and their keys, and the histogram of the first digit.
__global__ void __launch_bounds__(kSelectThreads) score_kernel(SelectCall call) {
  __shared__ uint32_t bins[kHistogramBins];
  for (int i = threadIdx.x; i < kHistogramBins; i += kSelectThreads) bins[i] = 0;
  __syncthreads();
  const int64_t question = blockIdx.y;
  const int begin = call.row_begins[question];
  const int end = call.row_ends[question];
  for (int64_t slot = int64_t{blockIdx.x} * kSelectThreads + threadIdx.x; slot < call.slots;
       slot += int64_t{gridDim.x} * kSelectThreads) {
    const int32_t* maxima = call.maxima + slot * call.stride;
    uint32_t key = 0;
    if ((call.visible[slot / 32] >> (slot % 32) & 1u) != 0) {
      double sum = 0.0;
      for (int row = begin; row < end; ++row) {
        const double dot = static_cast<double>(2 * maxima[row] - call.level_sums[row]);
        sum = __dadd_rn(sum, __dmul_rn(call.factors[row], dot));
      }
      key = key_of(static_cast<float>(__ddiv_rn(sum, call.root)));
      atomicAdd(bins + digit_of(key, 0), 1u);
    }
    call.keys[question * call.slots + slot] = key;
  }
  __syncthreads();
  uint32_t* histogram = call.histograms + question * 3 * kHistogramBins;
  for (int i = threadIdx.x; i < kHistogramBins; i += kSelectThreads) {
    if (bins[i] != 0) atomicAdd(histogram + i, bins[i]);
  }
}

// The histogram of digit kDigit of the keys that share the digits before with the last one to be chosen.
template <int kDigit>
__global__ void __launch_bounds__(kSelectThreads) histogram_kernel(SelectCall call) {
  __shared__ uint32_t bins[kHistogramBins];
  for (int i = threadIdx.x; i < kHistogramBins; i += kSelectThreads) bins[i] = 0;
  const int64_t question = blockIdx.y;
  uint32_t* histograms = call.histograms + question * 3 * kHistogramBins;
  Threshold threshold{0, call.count};
  for (int digit = 0; digit < kDigit; ++digit) narrow(histograms + digit * kHistogramBins, digit, threshold);
  if (threshold.everything) return;
  __syncthreads();
  for (int64_t slot = int64_t{blockIdx.x} * kSelectThreads + threadIdx.x; slot < call.slots;
       slot += int64_t{gridDim.x} * kSelectThreads) {
    const uint32_t key = call.keys[question * call.slots + slot];
    if (key != 0 && (key ^ threshold.prefix) >> shift_of(kDigit - 1) == 0) {
      atomicAdd(bins + digit_of(key, kDigit), 1u);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kHistogramBins; i += kSelectThreads) {
    if (bins[i] != 0) atomicAdd(histograms + kDigit * kHistogramBins + i, bins[i]);
  }
}

__global__ void __launch_bounds__(kSelectThreads) collect_kernel(SelectCall call) {
  const int64_t question = blockIdx.y;
  const uint32_t* histograms = call.histograms + question * 3 * kHistogramBins;
  Threshold threshold{0, call.count};
  for (int digit = 0; digit < 3; ++digit) narrow(histograms + digit * kHistogramBins, digit, threshold);
  const uint32_t least = threshold.everything ? 1u : threshold.prefix;
  for (int64_t slot = int64_t{blockIdx.x} * kSelectThreads + threadIdx.x; slot < call.slots;
       slot += int64_t{gridDim.x} * kSelectThreads) {
    const uint32_t key = call.keys[question * call.slots + slot];
    if (key < least) continue;
    const uint32_t at = atomicAdd(call.found + question, 1u);
    call.hits[question * call.slots + at] = {key, static_cast<uint32_t>(slot)};
  }
}

}  // namespace

void pack_codes(const CodeShape& shape, const RawCodes& raw, const CodeSegment& to, cudaStream_t stream) {
  if (raw.chunks == 0) return;
  const auto blocks = static_cast<unsigned>((raw.chunks + kWarpsOfABlock - 1) / kWarpsOfABlock);
  pack_kernel<<<blocks, kScanThreads, 0, stream>>>(shape, raw, to);
}

size_t scan_shared_bytes(const CodeShape& shape, int row_groups) {
  return shape.fragment_words() * static_cast<size_t>(row_groups) * sizeof(uint32_t);
}

cudaError_t scan_codes(const ScanCall& call, cudaStream_t stream) {
  if (call.segment.chunks == 0) return cudaSuccess;
  if (call.shape.blocks > 1) {  // then blocks have nine steps at least
    switch (call.shape.block_steps) {
      case 9:
        return launch_scan<9, false>(call, stream);
      case 10:
        return launch_scan<10, false>(call, stream);
      case 12:
        return launch_scan<12, false>(call, stream);
      case 14:
        return launch_scan<14, false>(call, stream);
      case 16:
        return launch_scan<16, false>(call, stream);
      default:
        return cudaErrorInvalidValue;
    }
  }
  switch (call.shape.block_steps) {
    case 1:
      return launch_scan<1, true>(call, stream);
    case 2:
      return launch_scan<2, true>(call, stream);
    case 3:
      return launch_scan<3, true>(call, stream);
    case 4:
      return launch_scan<4, true>(call, stream);
    case 5:
      return launch_scan<5, true>(call, stream);
    case 6:
      return launch_scan<6, true>(call, stream);
    case 7:
      return launch_scan<7, true>(call, stream);
    case 8:
      return launch_scan<8, true>(call, stream);
    case 9:
      return launch_scan<9, true>(call, stream);
    case 10:
      return launch_scan<10, true>(call, stream);
    case 12:
      return launch_scan<12, true>(call, stream);
    case 14:
      return launch_scan<14, true>(call, stream);
    case 16:
      return launch_scan<16, true>(call, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

float score_of_key(uint32_t key) {
  return __builtin_bit_cast(float, key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

void select_best(const SelectCall& call, cudaStream_t stream) {
  const auto most = static_cast<int64_t>(kSelectBlocks);
  const int64_t wanted = (call.slots + kSelectThreads - 1) / kSelectThreads;
  const dim3 grid(static_cast<unsigned>(wanted < most ? wanted : most),
                  static_cast<unsigned>(call.questions));
  score_kernel<<<grid, kSelectThreads, 0, stream>>>(call);
  histogram_kernel<1><<<grid, kSelectThreads, 0, stream>>>(call);
  histogram_kernel<2><<<grid, kSelectThreads, 0, stream>>>(call);
  collect_kernel<<<grid, kSelectThreads, 0, stream>>>(call);
}

}  // namespace rhapsode::kernels::cuda
