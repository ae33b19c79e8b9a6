// Sizeless vectors cannot be held in register blocks (arrays); SSSE3 machines take the next lower path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#define HWY_WANT_AVX3_DL

#include "index/code_scan_kernels.h"

#include <algorithm>
#include <cstring>

#include "base/kernel_choice.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "index/code_scan_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::index {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::CappedTag<uint64_t, 8>;
using Words = hn::Vec<WordTag>;
constexpr int kWordLanes = static_cast<int>(hn::MaxLanes(WordTag()));

using FloatTag = hn::CappedTag<float, 16>;
using Float = hn::Vec<FloatTag>;
constexpr int kFloatLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

// With 32 registers more codes share each load of the question.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kFourBitVectors = 4;
constexpr int kFloatVectors = 2;
#else
constexpr int kFourBitVectors = 2;
constexpr int kFloatVectors = 1;
#endif

// tile[word][code], the bits behind the last dimension cleared.
template <typename Word>
void transpose(const CodeBatch& batch, int dimensions, Word* HWY_RESTRICT tile) {
  constexpr int kBits = 8 * sizeof(Word);
  const int words = (dimensions + kBits - 1) / kBits;
  for (int code = 0; code < batch.count; ++code) {
    const std::byte* in = batch.codes[code];
    for (int w = 0; w < words; ++w)
      std::memcpy(&tile[w * kBatchCodes + code], in + w * sizeof(Word), sizeof(Word));
  }
  for (int w = 0; w < words; ++w) {
    std::fill(tile + w * kBatchCodes + batch.count, tile + (w + 1) * kBatchCodes, Word{0});
  }
  if (dimensions % kBits == 0) return;
  const Word used = static_cast<Word>(~Word{0}) >> (kBits - dimensions % kBits);
  Word* last = tile + (words - 1) * kBatchCodes;
  for (int code = 0; code < kBatchCodes; ++code) last[code] &= used;
}

// The sums of 2^b popcount(plane b ^ code) over words, for each code of one vector, of the kUsed highest
// planes.
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_SCALAR
template <int kUsed>
struct WeightedCounts {
  Words counts[kUsed];
  HWY_INLINE void clear() {
    for (Words& count : counts) count = hn::Zero(WordTag());
  }
  HWY_INLINE void add(Words code, const Words* planes) {
    for (int b = 0; b < kUsed; ++b) {
      counts[b] = hn::Add(counts[b], hn::PopulationCount(hn::Xor(code, planes[b])));
    }
  }
  HWY_INLINE Words total() const {
    Words sum = counts[kUsed - 1];
    for (int b = kUsed - 2; b >= 0; --b) sum = hn::Add(hn::Add(sum, sum), counts[b]);
    return sum;
  }
};
#else
template <int kUsed>
struct WeightedCounts {
  Words sum;
  HWY_INLINE void clear() { sum = hn::Zero(WordTag()); }
  HWY_INLINE void add(Words code, const Words* planes) {
    const hn::Repartition<uint8_t, WordTag> bytes;
    // Counts of a byte are at most 8, so that the weighted sum, at most 120, stays within the byte.
    auto weighted = hn::PopulationCount(hn::BitCast(bytes, hn::Xor(code, planes[kUsed - 1])));
    for (int b = kUsed - 2; b >= 0; --b) {
      const auto count = hn::PopulationCount(hn::BitCast(bytes, hn::Xor(code, planes[b])));
      weighted = hn::Add(hn::Add(weighted, weighted), count);
    }
    sum = hn::Add(sum, hn::SumsOf8(weighted));
  }
  HWY_INLINE Words total() const { return sum; }
};
#endif

// `most`: the sum of the planes' weights times the dimensions.
HWY_INLINE void store_dots(Words total, int most, int32_t* out) {
  const hn::Rebind<uint32_t, WordTag> halves;
  const hn::RebindToSigned<decltype(halves)> ints;
  const auto narrow = hn::BitCast(ints, hn::TruncateTo(halves, total));
  hn::StoreU(hn::Sub(hn::Set(ints, most), hn::Add(narrow, narrow)), ints, out);
}

template <int kUsed>
void integer_dots(const FourBitQuestion& question, const CodeBatch& batch, int32_t* HWY_RESTRICT dots) {
  const WordTag tag;
  auto* tile = reinterpret_cast<uint64_t*>(batch.scratch);
  transpose(batch, question.dimensions, tile);
  constexpr int kStep = kFourBitVectors * kWordLanes;
  for (int code = 0; code < batch.count; code += kStep) {
    const uint64_t* planes = question.planes.data();
    for (int t = 0; t < question.tokens; ++t) {
      WeightedCounts<kUsed> counts[kFourBitVectors];
      for (WeightedCounts<kUsed>& count : counts) count.clear();
      for (int w = 0; w < question.words; ++w, planes += kPlanes) {
        Words token[kUsed];
        for (int b = 0; b < kUsed; ++b) token[b] = hn::Set(tag, planes[kPlanes - kUsed + b]);
        for (int v = 0; v < kFourBitVectors; ++v) {
          counts[v].add(hn::Load(tag, tile + w * kBatchCodes + code + v * kWordLanes), token);
        }
      }
      for (int v = 0; v < kFourBitVectors; ++v) {
        store_dots(counts[v].total(), ((1 << kUsed) - 1) * question.dimensions,
                   dots + t * kBatchCodes + code + v * kWordLanes);
      }
    }
  }
}

// spread[dimension][kFloatVectors * lanes] = 1 where the code has the bit, else -1.
void spread_bits(const uint32_t* HWY_RESTRICT tile, int dimensions, float* HWY_RESTRICT spread) {
  const FloatTag f;
  const hn::RebindToUnsigned<FloatTag> bits;
  const auto minus_one = hn::BitCast(bits, hn::Set(f, -1.0f));
  const auto sign = hn::Set(bits, 0x80000000u);
  for (int v = 0; v < kFloatVectors; ++v) {
    for (int begin = 0; begin < dimensions; begin += 32) {
      auto word = hn::Load(bits, tile + begin / 32 * kBatchCodes + v * kFloatLanes);
      for (int bit = 31; bit >= 0;
           --bit, word = hn::Add(word, word)) {  // the bit stands where a float has its sign
        if (begin + bit >= dimensions) continue;
        float* out = spread + ((begin + bit) * kFloatVectors + v) * kFloatLanes;
        hn::Store(hn::BitCast(f, hn::Xor(minus_one, hn::And(word, sign))), f, out);
      }
    }
  }
}

// The products are exact, so fusing them with the additions changes nothing.
void multiply_block(const float* HWY_RESTRICT vectors, const float* HWY_RESTRICT spread, int dimensions,
                    int tokens, float* HWY_RESTRICT dots) {
  const FloatTag f;
  Float sums[kTokenBlock][kFloatVectors];
  for (auto& row : sums) {
    for (Float& sum : row) sum = hn::Zero(f);
  }
  for (int i = 0; i < dimensions; ++i) {
    Float signs[kFloatVectors];
    for (int v = 0; v < kFloatVectors; ++v) {
      signs[v] = hn::Load(f, spread + (i * kFloatVectors + v) * kFloatLanes);
    }
    for (int t = 0; t < kTokenBlock; ++t) {
      const Float value = hn::Set(f, vectors[i * kTokenBlock + t]);
      for (int v = 0; v < kFloatVectors; ++v) sums[t][v] = hn::MulAdd(value, signs[v], sums[t][v]);
    }
  }
  for (int t = 0; t < tokens; ++t) {
    for (int v = 0; v < kFloatVectors; ++v) {
      hn::StoreU(sums[t][v], f, dots + t * kBatchCodes + v * kFloatLanes);
    }
  }
}

void floats(const FloatQuestion& question, const CodeBatch& batch, float* HWY_RESTRICT dots) {
  auto* tile = reinterpret_cast<uint32_t*>(batch.scratch);
  auto* spread = reinterpret_cast<float*>(batch.scratch + four_bit_scratch_bytes(question.words));
  transpose(batch, question.dimensions, tile);
  constexpr int kStep = kFloatVectors * kFloatLanes;
  for (int code = 0; code < batch.count; code += kStep) {
    spread_bits(tile + code, question.dimensions, spread);
    for (int t = 0; t < question.tokens; t += kTokenBlock) {
      multiply_block(question.vectors.data() + static_cast<size_t>(t) * question.dimensions, spread,
                     question.dimensions, std::min(kTokenBlock, question.tokens - t),
                     dots + t * kBatchCodes + code);
    }
  }
}

template <typename Dot>
void raise(const Dot* HWY_RESTRICT dots, BatchRange range, int tokens, Dot* HWY_RESTRICT best) {
  const hn::CappedTag<Dot, 16> tag;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(decltype(tag)()));
  for (int t = 0; t < tokens; ++t, dots += kBatchCodes) {
    int i = range.begin;
    Dot highest = best[t];
    if (i + kLanes <= range.end) {
      auto lanes = hn::LoadU(tag, dots + i);
      for (i += kLanes; i + kLanes <= range.end; i += kLanes)
        lanes = hn::Max(lanes, hn::LoadU(tag, dots + i));
      highest = std::max(highest, hn::GetLane(hn::MaxOfLanes(tag, lanes)));
    }
    for (; i < range.end; ++i) highest = std::max(highest, dots[i]);
    best[t] = highest;
  }
}

}  // namespace

const ScanKernels* scan_kernels_of_target() {
  static const ScanKernels kKernels{hwy::TargetName(HWY_TARGET),
                                    integer_dots<kPlanes>,
                                    integer_dots<1>,
                                    floats,
                                    raise<int32_t>,
                                    raise<float>};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::index
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::index {
HWY_EXPORT(scan_kernels_of_target);

namespace {

const ScanKernels* best_scan_kernels() {
  return HWY_DYNAMIC_DISPATCH(scan_kernels_of_target)();
}

using Choice = KernelChoice<ScanKernels, best_scan_kernels>;

}  // namespace

const ScanKernels& scan_kernels() {
  return Choice::get();
}

bool force_scan_target(std::string_view name) {
  return Choice::force(name);
}

}  // namespace rhapsode::index
#endif  // HWY_ONCE
