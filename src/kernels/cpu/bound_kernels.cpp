#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#define HWY_WANT_AVX3_DL

#include "kernels/cpu/bound_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/kernel_choice.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bound_kernels.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/attend_math-inl.h"
#include "kernels/cpu/attend_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kMostHeadDim = 256;
constexpr int kGroupVectors = kKeyGroup / kLanes;
constexpr int kHeadsAtOnce = 8;
constexpr size_t kPagesAhead = 4;  // a page is scored in half the latency of memory or less
// Vectors that hold one number of each group between them, at four groups a page.
constexpr int kVectors = kLanes >= 4 ? 1 : 4 / kLanes;

// Sixteen keys of one dimension, as the page stores them; lanes at or beyond `filled` are left out by users.
template <class Type>
HWY_INLINE Float load_keys(const PageHeadView& view, int d, int slot, int dimension, int vector) {
  const auto* keys = reinterpret_cast<const typename Type::Storage*>(view.k) + key_index(d, slot, dimension);
  const Float value = load(Type(), keys + vector * kLanes);
  return view.k_scale ? hn::Mul(value, hn::LoadU(FloatTag(), view.k_scale + slot + vector * kLanes)) : value;
}

HWY_INLINE hn::Mask<FloatTag> first_lanes(int filled, int vector) {
  const int lanes = std::clamp(filled - vector * kLanes, 0, kLanes);
  return hn::FirstN(FloatTag(), static_cast<size_t>(lanes));
}

// Extent of the filled keys of one group in one dimension.
struct Extent {
  float low = kInfinity;
  float high = -kInfinity;
  float sum = 0.0f;
};

template <class Type>
Extent extent_of(const BoundTask& task, const PageHeadView& view, int begin, int end, int dimension) {
  const FloatTag f;
  Float low = hn::Set(f, kInfinity);
  Float high = hn::Set(f, -kInfinity);
  Float sum = hn::Zero(f);
  for (int slot = begin; slot < end; slot += kKeyGroup) {
    for (int vector = 0; vector < kGroupVectors; ++vector) {
      const auto filled = first_lanes(end - slot, vector);
      const Float keys = load_keys<Type>(view, task.shape->head_dim, slot, dimension, vector);
      low = hn::Min(low, hn::IfThenElse(filled, keys, hn::Set(f, kInfinity)));
      high = hn::Max(high, hn::IfThenElse(filled, keys, hn::Set(f, -kInfinity)));
      sum = hn::Add(sum, hn::IfThenElseZero(filled, keys));
    }
  }
  return {hn::GetLane(hn::MinOfLanes(f, low)), hn::GetLane(hn::MaxOfLanes(f, high)),
          hn::GetLane(hn::SumOfLanes(f, sum))};
}

// The largest squared distance of a filled key from `centre`.
template <class Type>
float largest_square(const BoundTask& task, const PageHeadView& view, int begin, int end,
                     const float* centre) {
  const FloatTag f;
  Float largest = hn::Zero(f);
  for (int slot = begin; slot < end; slot += kKeyGroup) {
    for (int vector = 0; vector < kGroupVectors; ++vector) {
      Float square = hn::Zero(f);
      for (int i = 0; i < task.shape->head_dim; ++i) {
        const Float keys = load_keys<Type>(view, task.shape->head_dim, slot, i, vector);
        const Float difference = hn::Sub(keys, hn::Set(f, centre[i]));
        square = hn::MulAdd(difference, difference, square);
      }
      largest = hn::Max(largest, hn::IfThenElseZero(first_lanes(end - slot, vector), square));
    }
  }
  return hn::GetLane(hn::MaxOfLanes(f, largest));
}

template <class Type>
void bound_group(const BoundTask& task, const PageHeadView& view, int group, uint16_t* row) {
  const int d = task.shape->head_dim;
  const int groups = task.bounds->groups();
  const int begin = group * task.bounds->group_slots;
  const int end = std::min(task.slots, begin + task.bounds->group_slots);
  const bool box = task.bounds->kind == BoundKind::kBox;
  const bool ball = task.bounds->kind == BoundKind::kBall;
  // An int8 key is a product, rounded here.
  const double rounding = view.k_scale ? 0x1p-23 : 0.0;
  float centre[kMostHeadDim];
  double size = 0.0;
  for (int i = 0; i < d; ++i) {
    const Extent extent = extent_of<Type>(task, view, begin, end, i);
    const float middle = box ? 0.5f * extent.low + 0.5f * extent.high : extent.sum / (end - begin);
    uint16_t& stored = row[i * groups + group];
    stored = f32_to_f16(middle);
    centre[i] = f16_to_f32(stored);
    const double largest = std::max(std::abs(double{extent.low}), std::abs(double{extent.high}));
    size = std::max(size, largest);
    if (ball) continue;
    const double reach = std::max(double{extent.high} - centre[i], double{centre[i]} - extent.low);
    row[(d + i) * groups + group] = f16_at_least(reach + largest * rounding);
  }
  if (!ball) return;
  const double radius = std::sqrt(double{largest_square<Type>(task, view, begin, end, centre)});
  row[d * groups + group] = f16_at_least(radius * (1.0 + d * 0x1p-22) + size * std::sqrt(d) * rounding);
}

template <class Type>
void bound_head(const BoundTask& task) {
  const PageHeadView view = page_head(*task.shape, *task.page, task.layer, task.kv_head);
  uint16_t* row = bounds_of_head(*task.shape, *task.bounds, *task.page, task.layer, task.kv_head);
  std::fill_n(row, task.bounds->row_elements(task.shape->head_dim), uint16_t{0});
  for (int group = 0; group * task.bounds->group_slots < task.slots; ++group) {
    bound_group<Type>(task, view, group, row);
  }
}

void bound(const BoundTask& task) {
  switch (task.shape->type) {
    case KvType::kF32:
      return bound_head<F32>(task);
    case KvType::kF16:
      return bound_head<F16>(task);
    case KvType::kBF16:
      return bound_head<BF16>(task);
    case KvType::kI8:
      return bound_head<I8>(task);
  }
}

// Rotates the heads by `angle` and extends them by what multiplies the radii; every number is repeated for
// each group.
void extend_queries(const ScoreTask& task, int32_t angle) {
  const int d = task.shape->head_dim;
  const int groups = task.bounds->groups();
  const int elements = task.bounds->row_elements(d);
  const bool ball = task.bounds->kind == BoundKind::kBall;
  const float weight = task.bounds->radius_weight();
  for (int head = 0; head < task.heads; ++head) {
    rotate_head(*task.site->rope, task.q + head * d, d, angle, task.site->scale, task.rotated);
    float* query = task.query + head * elements;
    float square = 0.0f;
    for (int i = 0; i < d; ++i) {
      const float value = task.rotated[i];
      square += value * value;
      std::fill_n(query + i * groups, groups, value);
      if (!ball) std::fill_n(query + (d + i) * groups, groups, weight * std::abs(value));
    }
    if (!ball) continue;
    std::fill(query + d * groups, query + elements, 0.0f);
    std::fill_n(query + d * groups, groups, std::sqrt(square));
  }
}

// Adds up lanes four apart, which belong to the same group.
template <class Tag, class Vector>
HWY_INLINE void store_four(Tag tag, Vector sums, float* HWY_RESTRICT four) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(Tag()) > 4) {
    const hn::Half<Tag> half;
    return store_four(half, hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)), four);
  }
#endif
  hn::StoreU(sums, tag, four);
}

// Bounds of one page for kHeads heads from `head` on; asks for the row that is read a few pages later.
template <int kHeads>
HWY_INLINE void score_page(const ScoreTask& task, const uint16_t* HWY_RESTRICT row, const uint16_t* later,
                           int head, float* HWY_RESTRICT scores) {
  const FloatTag f;
  const int groups = task.bounds->groups();
  const int elements = task.bounds->row_elements(task.shape->head_dim);
  const float* HWY_RESTRICT query = task.query + head * elements;
  Float sums[kHeads][kVectors];
  for (auto& head_sums : sums) {
    for (Float& sum : head_sums) sum = hn::Zero(f);
  }
  for (int i = 0; i < elements; i += kVectors * kLanes) {
    if (head == 0) hwy::Prefetch(later + i);
    for (int v = 0; v < kVectors; ++v) {
      const int at = i + v * kLanes;
      const Float bounds = load(F16(), row + at);
      for (int h = 0; h < kHeads; ++h) {
        sums[h][v] = hn::MulAdd(hn::LoadU(f, query + h * elements + at), bounds, sums[h][v]);
      }
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float four[4];
    for (int v = 0; v < kVectors; ++v) store_four(f, sums[h][v], four + v * kLanes);
    float* out = scores + (head + h) * task.stride;
    const float even = groups == 4 ? four[0] : four[0] + four[2];
    const float odd = groups == 4 ? four[1] : four[1] + four[3];
    out[0] = groups == 1 ? even + odd : even;
    if (groups > 1) out[1] = odd;
    if (groups > 2) std::copy_n(four + 2, 2, out + 2);
  }
}

template <int kHeads = kHeadsAtOnce>
HWY_INLINE void score_heads(const ScoreTask& task, int heads, const uint16_t* row, const uint16_t* later,
                            int head, float* scores) {
  if constexpr (kHeads > 1) {
    if (heads < kHeads) return score_heads<kHeads - 1>(task, heads, row, later, head, scores);
  }
  score_page<kHeads>(task, row, later, head, scores);
}

void score(const ScoreTask& task) {
  const int groups = task.bounds->groups();
  const auto row_of = [&](size_t index) {
    return bounds_of_head(*task.shape, *task.bounds, *task.references[index].reference.page, task.site->layer,
                          task.kv_head);
  };
  for (size_t r = 0; r < task.references.size(); ++r) {
    const int32_t shift = task.references[r].reference.shift;
    if (*task.extended != shift) {
      extend_queries(task, task.position - shift);
      *task.extended = shift;
    }
    const uint16_t* row = row_of(r);
    const uint16_t* later = row_of(std::min(r + kPagesAhead, task.references.size() - 1));
    float* scores = task.scores + r * static_cast<size_t>(groups);
    for (int head = 0; head < task.heads; head += kHeadsAtOnce) {
      score_heads(task, std::min(kHeadsAtOnce, task.heads - head), row, later, head, scores);
    }
  }
}

HWY_INLINE Float defined(Float score) {
  return hn::IfThenElse(hn::Eq(score, score), score, hn::Set(FloatTag(), kInfinity));
}

void value(const float* scores, int64_t stride, int heads, int count, float* HWY_RESTRICT out) {
  const FloatTag f;
  const Float infinity = hn::Set(f, kInfinity);
  const Float nothing = hn::Set(f, -kInfinity);
  for (int i = 0; i < count; i += kLanes) hn::StoreU(nothing, f, out + i);
  for (int head = 0; head < heads; ++head) {
    const float* HWY_RESTRICT own = scores + head * stride;
    Float largest = nothing;
    for (int i = 0; i < count; i += kLanes) {
      const Float score = hn::LoadU(f, own + i);
      largest = hn::Max(largest, hn::IfThenElse(hn::Lt(score, infinity), score, nothing));
    }
    const float base = hn::GetLane(hn::MaxOfLanes(f, largest));
    const Float drop = hn::Set(f, base == -kInfinity ? 0.0f : base);
    for (int i = 0; i < count; i += kLanes) {
      const Float score = defined(hn::LoadU(f, own + i));
      hn::StoreU(hn::Max(hn::LoadU(f, out + i), hn::Sub(score, drop)), f, out + i);
    }
  }
}

void mark(const float* HWY_RESTRICT values, int count, float threshold, uint64_t* above, uint64_t* equal) {
  const FloatTag f;
  const Float limit = hn::Set(f, threshold);
  for (int i = 0; i < count; i += 64) {
    uint64_t words[2] = {};
    for (int j = 0; j < 64 && i + j < count; j += kLanes) {
      const Float value_of = hn::LoadU(f, values + i + j);
      uint8_t bits[2][8] = {};
      hn::StoreMaskBits(f, hn::Gt(value_of, limit), bits[0]);
      hn::StoreMaskBits(f, hn::Eq(value_of, limit), bits[1]);
      for (int k = 0; k < 2; ++k) {
        uint64_t lanes = 0;
        std::memcpy(&lanes, bits[k], sizeof(lanes));
        words[k] |= lanes << j;
      }
    }
    above[i / 64] = words[0];
    equal[i / 64] = words[1];
  }
}

}  // namespace

const BoundKernels* bound_kernels_of_target() {
  static const BoundKernels kKernels{hwy::TargetName(HWY_TARGET), bound, score, value, mark};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::kernels::cpu {
HWY_EXPORT(bound_kernels_of_target);

namespace {

const BoundKernels* best_bound_kernels() {
  return HWY_DYNAMIC_DISPATCH(bound_kernels_of_target)();
}

using Choice = KernelChoice<BoundKernels, best_bound_kernels>;

}  // namespace

const BoundKernels& bound_kernels() {
  return Choice::get();
}

bool force_bound_target(const std::string& name) {
  return Choice::force(name);
}

}  // namespace rhapsode::kernels::cpu
#endif  // HWY_ONCE
