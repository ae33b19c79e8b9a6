// Sizeless vectors cannot be held in arrays; SSSE3 machines take the next lower path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)

#include "kernels/page_sum.h"

#include <bit>
#include <cstring>

#include "base/kernel_choice.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/page_sum.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/highway.h"

static_assert(std::endian::native == std::endian::little);

HWY_BEFORE_NAMESPACE();
namespace rhapsode::kernels {

#ifndef RHAPSODE_PAGE_SUM_KERNELS
#define RHAPSODE_PAGE_SUM_KERNELS
namespace {
struct PageSumKernels {
  const char* target = "";
  uint64_t (*sum)(const std::byte* page, size_t words) = nullptr;
};
}  // namespace
#endif

namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
uint64_t sum_of(const std::byte* page, size_t words) {
  uint64_t sum = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, page + i * sizeof word, sizeof word);
    sum += word_sum(word, i);
  }
  return sum;
}
#else
using Tag = hn::CappedTag<uint64_t, 8>;
constexpr size_t kLanes = hn::MaxLanes(Tag());
constexpr size_t kVectors = 4;  // independent sums: a multiplication takes several cycles

uint64_t sum_of(const std::byte* page, size_t words) {
  const Tag tag;
  const hn::Repartition<uint32_t, Tag> halves;
  uint64_t first[kLanes];
  for (size_t lane = 0; lane < kLanes; ++lane) first[lane] = (lane + 1) * kPageSumStep;
  hn::Vec<Tag> keys[kVectors];
  hn::Vec<Tag> sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    keys[v] = hn::Add(hn::LoadU(tag, first), hn::Set(tag, v * kLanes * kPageSumStep));
    sums[v] = hn::Zero(tag);
  }
  const auto step = hn::Set(tag, kVectors * kLanes * kPageSumStep);
  size_t i = 0;
  for (; i + kVectors * kLanes <= words; i += kVectors * kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto* at = reinterpret_cast<const uint64_t*>(page) + i + v * kLanes;
      const auto word = hn::LoadU(tag, at);
      const auto x = hn::Xor(word, keys[v]);
      // The even halves of 32 bits are the low ones.
      const auto product = hn::MulEven(hn::BitCast(halves, x), hn::BitCast(halves, hn::ShiftRight<32>(x)));
      sums[v] = hn::Add(sums[v], hn::Add(word, product));
      keys[v] = hn::Add(keys[v], step);
    }
  }
  for (size_t v = 1; v < kVectors; ++v) sums[0] = hn::Add(sums[0], sums[v]);
  uint64_t lanes[kLanes];
  hn::StoreU(sums[0], tag, lanes);
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  for (; i < words; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, page + i * sizeof word, sizeof word);
    sum += word_sum(word, i);
  }
  return sum;
}
#endif

}  // namespace

const PageSumKernels* page_sum_kernels_of_target() {
  static const PageSumKernels kKernels{hwy::TargetName(HWY_TARGET), sum_of};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::kernels {
HWY_EXPORT(page_sum_kernels_of_target);

namespace {

const PageSumKernels* best_page_sum_kernels() {
  return HWY_DYNAMIC_DISPATCH(page_sum_kernels_of_target)();
}

using Choice = KernelChoice<PageSumKernels, best_page_sum_kernels>;

}  // namespace

uint64_t page_sum(std::span<const std::byte> page) {
  return Choice::get().sum(page.data(), page.size() / sizeof(uint64_t));
}

bool force_page_sum_target(std::string_view name) {
  return Choice::force(name);
}

}  // namespace rhapsode::kernels
#endif  // HWY_ONCE
