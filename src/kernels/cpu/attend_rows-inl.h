// Single rows of attend: rotating a head, and storing rows of K and V in a page's type. Per instruction set
// (Highway).
//
// Rows are float32 [head_dim], a multiple of 16. Rounding is that of kernels/element.h on every instruction
// set.
#if defined(RHAPSODE_KERNELS_CPU_ATTEND_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RHAPSODE_KERNELS_CPU_ATTEND_ROWS_INL_H_
#undef RHAPSODE_KERNELS_CPU_ATTEND_ROWS_INL_H_
#else
#define RHAPSODE_KERNELS_CPU_ATTEND_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attend_kernels.h"
#include "kernels/cpu/attend_math-inl.h"
#include "kernels/element.h"
#include "kernels/page.h"
#include "kernels/rope.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Rotates one head by the angles of `position` and multiplies it with `factor`.
void rotate_head(const RopeTable& rope, const float* in, int d, int32_t position, float factor,
                 float* HWY_RESTRICT out) {
  const FloatTag f;
  const int pairs = rope.spec().dimensions / 2;
  const float* cosines = pairs > 0 ? rope.row(position) : nullptr;
  const float* sines = cosines + pairs;
  const bool adjacent = rope.spec().pairing == RopePairing::kAdjacent;
  const Float scale = hn::Set(f, factor);
  int pair = 0;
  for (; pair + kLanes <= pairs; pair += kLanes) {
    const Float cosine = hn::Mul(scale, hn::LoadU(f, cosines + pair));
    const Float sine = hn::Mul(scale, hn::LoadU(f, sines + pair));
    Float a = hn::LoadU(f, in + pair);
    Float b = hn::LoadU(f, in + pair + pairs);
    if (adjacent) hn::LoadInterleaved2(f, in + 2 * pair, a, b);
    const Float first = hn::NegMulAdd(b, sine, hn::Mul(a, cosine));
    const Float second = hn::MulAdd(a, sine, hn::Mul(b, cosine));
    if (adjacent) {
      hn::StoreInterleaved2(first, second, f, out + 2 * pair);
    } else {
      hn::StoreU(first, f, out + pair);
      hn::StoreU(second, f, out + pair + pairs);
    }
  }
  for (; pair < pairs; ++pair) {
    const int first = adjacent ? 2 * pair : pair;
    const int second = adjacent ? 2 * pair + 1 : pair + pairs;
    const float a = in[first];
    const float b = in[second];
    out[first] = (a * cosines[pair] - b * sines[pair]) * factor;
    out[second] = (a * sines[pair] + b * cosines[pair]) * factor;
  }
  for (int i = 2 * pairs; i < d; ++i) out[i] = in[i] * factor;
}

// Rounds to nearest in place where the instruction set can; Highway's emulation of f16 truncates.
void narrow_to_f16(const float* in, int d, uint16_t* out) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4)
  for (int i = 0; i < d; ++i) out[i] = f32_to_f16(in[i]);
#else
  const FloatTag f;
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  for (int i = 0; i < d; i += kLanes) {
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(f, in + i)), half, reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
}

// Quantises one row; returns its scale.
float narrow_to_i8(const float* in, int d, int8_t* out) {
  const FloatTag f;
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<int8_t, FloatTag> bytes;
  Float largest = hn::Zero(f);
  for (int i = 0; i < d; i += kLanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(f, in + i)));
  const float scale = hn::GetLane(hn::MaxOfLanes(f, largest)) / 127.0f;
  const Float inverse = hn::Set(f, scale > 0 ? 1.0f / scale : 0.0f);
  for (int i = 0; i < d; i += kLanes) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(f, in + i), inverse));
    const auto clamped = hn::Max(hn::Min(rounded, hn::Set(ints, 127)), hn::Set(ints, -127));
    hn::StoreU(hn::DemoteTo(bytes, clamped), bytes, out + i);
  }
  return scale;
}

// Writes one row with `step` elements from one dimension to the next: 16 in K, 1 in V.
void store_row(KvType type, const float* in, int d, int step, std::byte* out, float* scale) {
  if (type == KvType::kF32) {
    for (int i = 0; i < d; ++i) reinterpret_cast<float*>(out)[i * step] = in[i];
    return;
  }
  if (type == KvType::kI8) {
    int8_t narrow[256];
    *scale = narrow_to_i8(in, d, narrow);
    for (int i = 0; i < d; ++i) reinterpret_cast<int8_t*>(out)[i * step] = narrow[i];
    return;
  }
  uint16_t narrow[256];
  if (type == KvType::kF16) {
    narrow_to_f16(in, d, narrow);
  } else {
    for (int i = 0; i < d; ++i) narrow[i] = f32_to_bf16(in[i]);
  }
  for (int i = 0; i < d; ++i) reinterpret_cast<uint16_t*>(out)[i * step] = narrow[i];
}

[[maybe_unused]] void write(const HeadWrite& head, float* row) {
  const KvShape& shape = *head.shape;
  const int d = shape.head_dim;
  const int slot = head.target.slot;
  const Page& page = *head.target.page;
  const auto element = static_cast<size_t>(element_bytes(shape.type));
  const PageHeadView view = page_head(shape, page, head.site->layer, head.kv_head);
  rotate_head(*head.site->rope, head.k, d, page.positions[static_cast<size_t>(slot)], 1.0f, row);
  store_row(shape.type, row, d, kKeyGroup, view.k + key_index(d, slot, 0) * element,
            view.k_scale ? view.k_scale + slot : nullptr);
  store_row(shape.type, head.v, d, 1, view.v + static_cast<size_t>(slot * d) * element,
            view.v_scale ? view.v_scale + slot : nullptr);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
