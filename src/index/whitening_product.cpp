// Sizeless vectors cannot be held in register blocks (arrays); SSSE3 machines take the next lower path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)

#include "index/whitening_product.h"

#include <algorithm>
#include <type_traits>

#include "base/kernel_choice.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "index/whitening_product.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::index {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using Float = hn::Vec<FloatTag>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
// Eight chains of multiply-adds hide the latency of one; more vectors would not fit sixteen registers.
constexpr int kBlockRows = 2;
constexpr int kBlockVectors = 4;

HWY_INLINE Float load_i8(const int8_t* in) {
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<int8_t, FloatTag> bytes;
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(ints, hn::LoadU(bytes, in)));
}

template <int kRows, int kVectors>
HWY_INLINE void multiply_block(const WhiteningTask& task, int row, int vector) {
  const FloatTag f;
  const int8_t* HWY_RESTRICT matrix = task.matrix + static_cast<size_t>(row) * task.stride;
  const float* HWY_RESTRICT vectors = task.vectors + static_cast<size_t>(vector) * task.stride;
  Float sums[kRows][kVectors];
  for (auto& sums_of_row : sums) {
    for (Float& sum : sums_of_row) sum = hn::Zero(f);
  }
  for (int i = 0; i < task.stride; i += kLanes) {
    Float factors[kRows];
    for (int r = 0; r < kRows; ++r) factors[r] = load_i8(matrix + r * task.stride + i);
    for (int v = 0; v < kVectors; ++v) {
      const Float values = hn::LoadU(f, vectors + v * task.stride + i);
      for (int r = 0; r < kRows; ++r) sums[r][v] = hn::MulAdd(factors[r], values, sums[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const float sum = hn::GetLane(hn::SumOfLanes(f, sums[r][v]));
      task.out[static_cast<size_t>(vector + v) * task.rows + row + r] = sum * task.scales[row + r];
    }
  }
}

template <int kVectors>
void multiply_vectors(const WhiteningTask& task, int vector) {
  int row = 0;
  for (; row + kBlockRows <= task.rows; row += kBlockRows) {
    multiply_block<kBlockRows, kVectors>(task, row, vector);
  }
  for (; row < task.rows; ++row) multiply_block<1, kVectors>(task, row, vector);
}

// Calls function(integral_constant<vectors>) for 1 to kBlockVectors vectors.
template <int kVectors = kBlockVectors, class Function>
HWY_INLINE void with_vectors(int vectors, const Function& function) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return with_vectors<kVectors - 1>(vectors, function);
  }
  function(std::integral_constant<int, kVectors>());
}

void multiply(const WhiteningTask& task) {
  for (int vector = 0; vector < task.count; vector += kBlockVectors) {
    with_vectors(task.count - vector, [&](auto vectors) { multiply_vectors<vectors>(task, vector); });
  }
}

}  // namespace

const WhiteningKernels* whitening_kernels_of_target() {
  static const WhiteningKernels kKernels{hwy::TargetName(HWY_TARGET), multiply};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::index
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::index {
HWY_EXPORT(whitening_kernels_of_target);

namespace {

const WhiteningKernels* best_whitening_kernels() {
  return HWY_DYNAMIC_DISPATCH(whitening_kernels_of_target)();
}

using Choice = KernelChoice<WhiteningKernels, best_whitening_kernels>;

}  // namespace

const WhiteningKernels& whitening_kernels() {
  return Choice::get();
}

bool force_whitening_target(std::string_view name) {
  return Choice::force(name);
}

}  // namespace rhapsode::index
#endif  // HWY_ONCE
