// Sizeless vectors cannot be held in register blocks (arrays); SSSE3 machines take the next lower path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#define HWY_WANT_AVX3_DL

#include "kernels/cpu/attend_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/kernel_choice.h"
#include "kernels/cpu/attend.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend_kernels.cpp"
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

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kWideRows = 12;  // above it a page is widened to f32 once instead of by every register block
constexpr int kRowVectors = kPageTokens / kLanes;
// A register block holds kRegisterRows x kRegisterVectors sums: as many as the registers of the target allow.
constexpr int kRegisterVectors = kLanes == 8 ? 2 : 4;
constexpr int kRegisterRows = kLanes < 8 && HWY_ARCH_X86 ? 2 : 6;
constexpr int kRegisterSpan = kRegisterVectors * kLanes;

// Slots that some row of the block sees, as runs of neighbours.
struct Runs {
  int count = 0;
  int begin[kPageTokens / 2];
  int end[kPageTokens / 2];
};

Runs find_runs(uint64_t slots) {
  Runs runs;
  int base = 0;
  while (slots != 0) {
    const int gap = std::countr_zero(slots);
    slots >>= gap;
    const int length = std::countr_one(slots);
    runs.begin[runs.count] = base + gap;
    runs.end[runs.count++] = base + gap + length;
    base += gap + length;
    slots = length == kPageTokens ? 0 : slots >> length;
  }
  return runs;
}

// One page of one KV head, ready to be read.
struct PageTask {
  int rows = 0;
  int head_dim = 0;
  uint64_t visible = 0;  // to any row
  const float* k_scale = nullptr;
  const float* v_scale = nullptr;
  const std::byte* next_k = nullptr;  // the page after this one, to be fetched meanwhile
  const std::byte* next_v = nullptr;
  float soft_cap = 0.0f;
  bool uniform = false;  // every row sees exactly `visible`
  Runs runs;             // of `visible`
};

// Asks for as many bytes of the next page as one step consumes of this one. Pages are runs of a few KiB, too
// short for the hardware to learn: without this a decode step waits for the latency of memory instead of
// using its bandwidth.
template <size_t kBytes>
HWY_INLINE void prefetch(const std::byte* next) {
  for (size_t i = 0; i < kBytes; i += 64) hwy::Prefetch(next + i);
}

// scores[r][slots of `vectors` vectors] = q[r] . k, each score one chain of multiply-adds over the
// dimensions.
template <int kRows, int kVectors, class Type>
HWY_INLINE void multiply_keys(const float* HWY_RESTRICT q, int d,
                              const typename Type::Storage* HWY_RESTRICT k, const std::byte* next,
                              float* HWY_RESTRICT scores) {
  const FloatTag f;
  constexpr int kPerGroup = kKeyGroup / kLanes;
  Float sums[kRows][kVectors];
  for (auto& row : sums) {
    for (Float& sum : row) sum = hn::Zero(f);
  }
  for (int i = 0; i < d; ++i) {
    constexpr size_t kBytes = kVectors * kLanes * sizeof(typename Type::Storage);
    prefetch<kBytes>(next + static_cast<size_t>(i) * kBytes);
    Float keys[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      keys[j] = load(Type(), k + (j / kPerGroup) * d * kKeyGroup + i * kKeyGroup + (j % kPerGroup) * kLanes);
    }
    for (int r = 0; r < kRows; ++r) {
      const Float query = hn::Set(f, q[r * d + i]);
      for (int j = 0; j < kVectors; ++j) sums[r][j] = hn::MulAdd(query, keys[j], sums[r][j]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[r][j], f, scores + r * kPageTokens + j * kLanes);
  }
}

// out[r][columns] = out * rescale[r] + sum over the visible runs of weights[r][t] v[t], in slot order;
// `column` is the first of kVectors * kLanes columns.
template <int kRows, int kVectors, class Type>
HWY_INLINE void add_values(const PageTask& page, int column, const float* HWY_RESTRICT weights,
                           const float* HWY_RESTRICT rescale, const typename Type::Storage* HWY_RESTRICT v,
                           float* HWY_RESTRICT out) {
  const FloatTag f;
  constexpr size_t kElement = sizeof(typename Type::Storage);
  const int d = page.head_dim;
  Float sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    const Float factor = hn::Set(f, rescale[r]);
    for (int j = 0; j < kVectors; ++j)
      sums[r][j] = hn::Mul(factor, hn::LoadU(f, out + r * d + column + j * kLanes));
  }
  for (int run = 0; run < page.runs.count; ++run) {
    for (int t = page.runs.begin[run]; t < page.runs.end[run]; ++t) {
      const int offset = t * d + column;
      prefetch<kVectors * kLanes * kElement>(page.next_v + static_cast<size_t>(offset) * kElement);
      Float values[kVectors];
      for (int j = 0; j < kVectors; ++j) values[j] = load(Type(), v + offset + j * kLanes);
      for (int r = 0; r < kRows; ++r) {
        const Float weight = hn::Set(f, weights[r * kPageTokens + t]);
        for (int j = 0; j < kVectors; ++j) sums[r][j] = hn::MulAdd(weight, values[j], sums[r][j]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[r][j], f, out + r * d + column + j * kLanes);
  }
}

// True if every group of keys has a slot that somebody sees.
HWY_INLINE bool shows_all_groups(uint64_t visible) {
  for (int slot = 0; slot < kPageTokens; slot += kKeyGroup) {
    if ((visible >> slot & 0xffffu) == 0) return false;
  }
  return true;
}

template <int kRows, class Type>
void key_rows(const PageTask& page, const float* q, const typename Type::Storage* k, float* scores) {
  const int d = page.head_dim;
  if (kRegisterSpan == kPageTokens && shows_all_groups(page.visible)) {
    return multiply_keys<kRows, kRegisterVectors, Type>(q, d, k, page.next_k, scores);
  }
  for (int slot = 0; slot < kPageTokens; slot += kKeyGroup) {
    if ((page.visible >> slot & 0xffffu) == 0) continue;
    const std::byte* next = page.next_k + static_cast<size_t>(slot * d) * sizeof(typename Type::Storage);
    multiply_keys<kRows, kKeyGroup / kLanes, Type>(q, d, k + slot * d, next, scores + slot);
  }
}

template <int kRows, class Type>
void value_rows(const PageTask& page, const float* weights, const float* rescale,
                const typename Type::Storage* v, float* out) {
  int column = 0;
  for (; column + kRegisterSpan <= page.head_dim; column += kRegisterSpan) {
    add_values<kRows, kRegisterVectors, Type>(page, column, weights, rescale, v, out);
  }
  for (; column < page.head_dim; column += kKeyGroup) {
    add_values<kRows, kKeyGroup / kLanes, Type>(page, column, weights, rescale, v, out);
  }
}

// Calls function.template operator()<rows>() for 1 to kRegisterRows rows.
template <int kRows = kRegisterRows, class Function>
HWY_INLINE void with_rows(int rows, const Function& function) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return with_rows<kRows - 1>(rows, function);
  }
  function(std::integral_constant<int, kRows>());
}

// Splits rows into register blocks of nearly equal height.
template <class Function>
HWY_INLINE void for_register_blocks(int rows, const Function& function) {
  const int blocks = (rows + kRegisterRows - 1) / kRegisterRows;
  const int height = (rows + blocks - 1) / blocks;
  for (int row = 0; row < rows; row += height) {
    with_rows(std::min(height, rows - row), [&](auto count) { function(row, count); });
  }
}

// Whether a vector of slots holds one of `slots`.
HWY_INLINE bool touches(uint64_t slots, int vector) {
  return (slots >> (vector * kLanes) & ((1ull << kLanes) - 1)) != 0;
}

HWY_INLINE hn::Mask<FloatTag> mask_of(uint64_t slots, int vector) {
  const uint64_t bits = slots >> (vector * kLanes);
  uint8_t bytes[8];
  std::memcpy(bytes, &bits, sizeof(bytes));
  return hn::LoadMaskBits(FloatTag(), bytes);
}

// Final scores of one row in base 2: int8 scales and the soft cap applied.
HWY_INLINE Float final_score(const PageTask& page, const float* scores, int vector) {
  const FloatTag f;
  Float score = hn::LoadU(f, scores + vector * kLanes);
  if (page.k_scale) score = hn::Mul(score, hn::LoadU(f, page.k_scale + vector * kLanes));
  if (page.soft_cap > 0) score = hn::Mul(tanh_of_scaled(score), hn::Set(f, page.soft_cap * kLog2E));
  return score;
}

// Turns the scores of one row into weights 2^(score - max), raises max where needed, and adds to the row's
// sums. Returns what the row's earlier output must be multiplied with.
HWY_INLINE float soften_row(const PageTask& page, uint64_t visible, float* HWY_RESTRICT weights, float& max,
                            float* HWY_RESTRICT lanes) {
  const FloatTag f;
  Float scores[kRowVectors];
  Float highest = hn::Set(f, kMinusInfinity);
  for (int j = 0; j < kRowVectors; ++j) {
    scores[j] = hn::Set(f, kMinusInfinity);
    if (!touches(visible, j)) continue;  // common where single groups of a page are read
    scores[j] = hn::IfThenElse(mask_of(visible, j), final_score(page, weights, j), scores[j]);
    highest = hn::Max(highest, scores[j]);
  }
  float rescale = 1.0f;
  Float sum = hn::LoadU(f, lanes);
  if (!hn::AllFalse(f, hn::Gt(highest, hn::Set(f, max)))) {
    const float raised = hn::GetLane(hn::MaxOfLanes(f, highest));
    const Float drop = hn::Set(f, max - raised);
    const Float factor = hn::IfThenElseZero(hn::Ge(drop, hn::Set(f, -126.0f)), exp2(drop));
    sum = hn::Mul(sum, factor);
    rescale = hn::GetLane(factor);
    max = raised;
  }
  const Float base = hn::Set(f, max == kMinusInfinity ? 0.0f : max);
  for (int j = 0; j < kRowVectors; ++j) {
    if (!touches(visible, j)) {
      hn::StoreU(hn::Zero(f), f, weights + j * kLanes);
      continue;
    }
    const Float x = hn::Sub(scores[j], base);
    Float weight = hn::IfThenElseZero(hn::Ge(x, hn::Set(f, -126.0f)), exp2(x));
    sum = hn::Add(sum, weight);
    if (page.v_scale) {
      weight =
          hn::IfThenElseZero(mask_of(visible, j), hn::Mul(weight, hn::LoadU(f, page.v_scale + j * kLanes)));
    }
    hn::StoreU(weight, f, weights + j * kLanes);
  }
  hn::StoreU(sum, f, lanes);
  return rescale;
}

template <class Type>
void multiply_page(const PageTask& page, const typename Type::Storage* k, const Scratch& scratch) {
  for_register_blocks(page.rows, [&](int row, auto count) {
    key_rows<count, Type>(page, scratch.q + row * page.head_dim, k, scratch.weights + row * kPageTokens);
  });
}

// Widens K or V of the groups that somebody sees. Both use the same tile, one after the other: it stays in
// the first level cache together with the block's queries, weights and outputs.
template <class Type>
void widen_tile(const PageTask& page, const typename Type::Storage* in, float* HWY_RESTRICT tile) {
  const FloatTag f;
  const int group = page.head_dim * kKeyGroup;
  for (int slot = 0; slot < kPageTokens; slot += kKeyGroup) {
    if ((page.visible >> slot & 0xffffu) == 0) continue;
    const int begin = slot * page.head_dim;
    for (int i = begin; i < begin + group; i += kLanes) hn::StoreU(load(Type(), in + i), f, tile + i);
  }
}

template <class Type>
void add_rows(const PageTask& page, const typename Type::Storage* v, const Scratch& scratch,
              const BlockState& state) {
  for_register_blocks(page.rows, [&](int row, auto count) {
    value_rows<count, Type>(page, scratch.weights + row * kPageTokens, scratch.rescale + row, v,
                            state.out + row * page.head_dim);
  });
}

void soften_rows(const PageTask& page, const Scratch& scratch, const BlockState& state) {
  for (int r = 0; r < page.rows; ++r) {
    float* weights = scratch.weights + r * kPageTokens;
    const uint64_t visible = page.uniform ? page.visible : scratch.visible[r];
    scratch.rescale[r] = soften_row(page, visible, weights, state.max[r], scratch.lanes + r * kKeyGroup);
  }
}

template <class Type>
void attend_page(const PageTask& page, const typename Type::Storage* k, const typename Type::Storage* v,
                 const Scratch& scratch, const BlockState& state) {
  if (page.rows > kWideRows && !std::is_same_v<Type, F32>) {
    widen_tile<Type>(page, k, scratch.tile);
    multiply_page<F32>(page, scratch.tile, scratch);
    soften_rows(page, scratch, state);
    widen_tile<Type>(page, v, scratch.tile);
    add_rows<F32>(page, scratch.tile, scratch, state);
    return;
  }
  multiply_page<Type>(page, k, scratch);
  soften_rows(page, scratch, state);
  add_rows<Type>(page, v, scratch, state);
}

void rotate_block(const BlockTask& task, int32_t shift, float* q) {
  const AttendSite& site = *task.site;
  const int d = task.shape->head_dim;
  const float factor = site.soft_cap > 0 ? 2.0f * kLog2E * site.scale / site.soft_cap : kLog2E * site.scale;
  for (int r = 0; r < task.rows->count; ++r) {
    rotate_head(*site.rope, task.rows->q[r], d, task.rows->positions[r] - shift, factor, q + r * d);
  }
}

// Works out which rows see what; visible = 0 if nobody sees anything.
PageTask look_at_page(const BlockTask& task, const ResolvedReference& resolved, uint64_t* visible) {
  const BlockRows& rows = *task.rows;
  const int32_t window = task.site->window;
  PageTask page;
  page.rows = rows.count;
  page.head_dim = task.shape->head_dim;
  page.soft_cap = task.site->soft_cap;
  if (!may_see(resolved, rows.lowest, rows.highest, window)) return page;
  if (all_see(resolved, rows.lowest, rows.highest, window)) {
    page.visible = resolved.reference.mask;
    page.uniform = true;
    return page;
  }
  for (int r = 0; r < rows.count; ++r) {
    if (r > 0 && rows.positions[r] == rows.positions[r - 1]) {
      visible[r] = visible[r - 1];
    } else {
      visible[r] = visible_slots(resolved.reference, kPageTokens, rows.positions[r], window);
    }
    page.visible |= visible[r];
  }
  return page;
}

// The first reference at or after `index` that some row may see; the end of the list if there is none.
size_t next_reference(const BlockTask& task, size_t index) {
  const BlockRows& rows = *task.rows;
  while (index < task.references.size() &&
         !may_see(task.references[index], rows.lowest, rows.highest, task.site->window)) {
    ++index;
  }
  return index;
}

// How far the first slots that are read of the next page lie behind those of this one, in bytes of K and of
// V: where a page is read in part, what is fetched ahead are the groups that come next, not their neighbours.
template <class Type>
ptrdiff_t next_offset(const PageTask& page, const ResolvedReference& next) {
  if (next.reference.mask == 0) return 0;
  const int first = std::countr_zero(page.visible) / kKeyGroup;
  const int last = (kPageTokens - 1 - std::countl_zero(page.visible)) / kKeyGroup;
  const int wanted = std::countr_zero(next.reference.mask) / kKeyGroup;
  const int groups = std::min(wanted - first, kPageTokens / kKeyGroup - 1 - last);
  return ptrdiff_t{groups} * kKeyGroup * page.head_dim *
         static_cast<ptrdiff_t>(sizeof(typename Type::Storage));
}

// Calls use(index, page, view) for every page that some row sees, with the queries rotated into its frame.
template <class Type, class Use>
HWY_INLINE void for_each_page(const BlockTask& task, const Scratch& scratch, const Use& use) {
  const PageReference* rotated = nullptr;
  const auto view_of = [&](size_t index) {
    return page_head(*task.shape, *task.references[index].reference.page, task.site->layer, task.kv_head);
  };
  for (size_t index = next_reference(task, 0); index < task.references.size();) {
    const ResolvedReference& resolved = task.references[index];
    const size_t next = next_reference(task, index + 1);
    PageTask page = look_at_page(task, resolved, scratch.visible);
    if (page.visible != 0) {
      if (rotated == nullptr || rotated->shift != resolved.reference.shift) {
        rotate_block(task, resolved.reference.shift, scratch.q);
        rotated = &resolved.reference;
      }
      const PageHeadView view = view_of(index);
      const bool more = next < task.references.size();
      const PageHeadView next_view = more ? view_of(next) : view;
      const ptrdiff_t offset = more ? next_offset<Type>(page, task.references[next]) : 0;
      page.k_scale = view.k_scale;
      page.v_scale = view.v_scale;
      page.next_k = next_view.k + offset;
      page.next_v = next_view.v + offset;
      page.runs = find_runs(page.visible);
      use(index, page, view);
    }
    index = next;
  }
}

template <class Type>
void attend_pages(const BlockTask& task, const Scratch& scratch, const BlockState& state) {
  using Storage = typename Type::Storage;
  for_each_page<Type>(task, scratch, [&](size_t, const PageTask& page, const PageHeadView& view) {
    attend_page<Type>(page, reinterpret_cast<const Storage*>(view.k),
                      reinterpret_cast<const Storage*>(view.v), scratch, state);
  });
}

void attend(const BlockTask& task, const Scratch& scratch, const BlockState& state) {
  const FloatTag f;
  const int rows = task.rows->count;
  const int d = task.shape->head_dim;
  std::fill_n(state.max, rows, kMinusInfinity);
  std::fill_n(scratch.lanes, rows * kKeyGroup, 0.0f);
  std::fill_n(state.out, rows * d, 0.0f);
  switch (task.shape->type) {
    case KvType::kF32:
      attend_pages<F32>(task, scratch, state);
      break;
    case KvType::kF16:
      attend_pages<F16>(task, scratch, state);
      break;
    case KvType::kBF16:
      attend_pages<BF16>(task, scratch, state);
      break;
    case KvType::kI8:
      attend_pages<I8>(task, scratch, state);
      break;
  }
  for (int r = 0; r < rows; ++r) {
    state.sum[r] = hn::GetLane(hn::SumOfLanes(f, hn::LoadU(f, scratch.lanes + r * kKeyGroup)));
  }
}

void fold(const BlockState& into, const BlockState& part, int rows, int d) {
  const FloatTag f;
  for (int r = 0; r < rows; ++r) {
    if (part.sum[r] == 0.0f) continue;
    float* out = into.out + r * d;
    const float* other = part.out + r * d;
    if (into.sum[r] == 0.0f) {
      into.max[r] = part.max[r];
      into.sum[r] = part.sum[r];
      std::copy_n(other, d, out);
      continue;
    }
    const float max = std::max(into.max[r], part.max[r]);
    const float keep = std::exp2(into.max[r] - max);
    const float add = std::exp2(part.max[r] - max);
    into.max[r] = max;
    into.sum[r] = into.sum[r] * keep + part.sum[r] * add;
    for (int i = 0; i < d; i += kLanes) {
      const Float kept = hn::Mul(hn::LoadU(f, out + i), hn::Set(f, keep));
      hn::StoreU(hn::MulAdd(hn::LoadU(f, other + i), hn::Set(f, add), kept), f, out + i);
    }
  }
}

void finish(const BlockState& state, const BlockRows& rows, int d) {
  const FloatTag f;
  for (int r = 0; r < rows.count; ++r) {
    const float sum = state.sum[r];
    const Float factor = hn::Set(f, sum == 0.0f ? 0.0f : 1.0f / sum);
    for (int i = 0; i < d; i += kLanes) {
      // Adding zero makes -0 into 0: which of them a masked slot leaves behind is an accident of the block.
      const Float value = hn::MulAdd(hn::LoadU(f, state.out + r * d + i), factor, hn::Zero(f));
      hn::StoreU(value, f, rows.out[r] + i);
    }
    if (rows.lse[r]) *rows.lse[r] = sum == 0.0f ? kMinusInfinity : state.max[r] / kLog2E + std::log(sum);
  }
}

template <class Type>
void mass_pages(const BlockTask& task, const Scratch& scratch, double* mass) {
  const FloatTag f;
  for_each_page<Type>(task, scratch, [&](size_t index, const PageTask& page, const PageHeadView& view) {
    multiply_page<Type>(page, reinterpret_cast<const typename Type::Storage*>(view.k), scratch);
    std::fill_n(scratch.row, kPageTokens, 0.0f);
    for (int r = 0; r < page.rows; ++r) {
      const uint64_t visible = page.uniform ? page.visible : scratch.visible[r];
      const Float lse = hn::Set(f, *task.rows->lse[r] * kLog2E);
      for (int j = 0; visible != 0 && j < kRowVectors; ++j) {
        const Float x =
            hn::Min(hn::Sub(final_score(page, scratch.weights + r * kPageTokens, j), lse), hn::Zero(f));
        const auto counts = hn::And(mask_of(visible, j), hn::Ge(x, hn::Set(f, -126.0f)));
        float* sum = scratch.row + j * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(f, sum), hn::IfThenElseZero(counts, exp2(x))), f, sum);
      }
    }
    for (size_t slot = 0; slot < kPageTokens; ++slot) mass[index * kPageTokens + slot] += scratch.row[slot];
  });
}

void mass(const BlockTask& task, const Scratch& scratch, double* result) {
  switch (task.shape->type) {
    case KvType::kF32:
      return mass_pages<F32>(task, scratch, result);
    case KvType::kF16:
      return mass_pages<F16>(task, scratch, result);
    case KvType::kBF16:
      return mass_pages<BF16>(task, scratch, result);
    case KvType::kI8:
      return mass_pages<I8>(task, scratch, result);
  }
}

}  // namespace

const AttendKernels* kernels_of_target() {
  static const AttendKernels kKernels{hwy::TargetName(HWY_TARGET), attend, fold, finish, mass, write};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::kernels::cpu {
HWY_EXPORT(kernels_of_target);

namespace {

const AttendKernels* best_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels_of_target)();
}

using Choice = KernelChoice<AttendKernels, best_kernels>;

}  // namespace

const AttendKernels& attend_kernels() {
  return Choice::get();
}

std::string attend_target() {
  return attend_kernels().target;
}

bool force_attend_target(const std::string& name) {
  return Choice::force(name);
}

}  // namespace rhapsode::kernels::cpu
#endif  // HWY_ONCE
