// Vector maths of attend: powers of two, tanh, and loading page elements as float. Per instruction set
// (Highway).
//
// exp2 is within 2 ulp for x in [-126, 126]; the caller discards lanes outside of it.
#if defined(RHAPSODE_KERNELS_CPU_ATTEND_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RHAPSODE_KERNELS_CPU_ATTEND_MATH_INL_H_
#undef RHAPSODE_KERNELS_CPU_ATTEND_MATH_INL_H_
#else
#define RHAPSODE_KERNELS_CPU_ATTEND_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: a group of keys fills whole vectors.
using FloatTag = hn::CappedTag<float, 16>;
using Float = hn::Vec<FloatTag>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

struct F16 {
  using Storage = uint16_t;
};
struct BF16 {
  using Storage = uint16_t;
};
struct F32 {
  using Storage = float;
};
struct I8 {
  using Storage = int8_t;
};

HWY_INLINE Float load(F32, const float* p) {
  return hn::LoadU(FloatTag(), p);
}
HWY_INLINE Float load(F16, const uint16_t* p) {
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  return hn::PromoteTo(FloatTag(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE Float load(BF16, const uint16_t* p) {
  const hn::RebindToUnsigned<FloatTag> bits;
  const hn::Rebind<uint16_t, FloatTag> half;
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(half, p))));
}
HWY_INLINE Float load(I8, const int8_t* p) {
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<int8_t, FloatTag> bytes;
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(ints, hn::LoadU(bytes, p)));
}

// 2^x: adding 1.5 * 2^23 rounds x to an integer in the low bits, a polynomial (Remez, relative error 7.5e-8)
// covers the rest in [-0.5, 0.5], and the integer is added to the exponent.
HWY_INLINE Float exp2(Float x) {
  const FloatTag f;
  const hn::RebindToUnsigned<FloatTag> bits;
  const Float magic = hn::Set(f, 12582912.0f);
  const Float shifted = hn::Add(x, magic);
  const Float r = hn::Sub(x, hn::Sub(shifted, magic));
  Float p = hn::Set(f, 1.327647245e-03f);
  p = hn::MulAdd(p, r, hn::Set(f, 9.675540961e-03f));
  p = hn::MulAdd(p, r, hn::Set(f, 5.550713092e-02f));
  p = hn::MulAdd(p, r, hn::Set(f, 2.402212024e-01f));
  p = hn::MulAdd(p, r, hn::Set(f, 6.931469440e-01f));
  p = hn::MulAdd(p, r, hn::Set(f, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(bits, shifted));
  return hn::BitCast(f, hn::Add(hn::BitCast(bits, p), exponent));
}

// tanh(y) for z = 2 y log2(e): absolute error below 2^-22.
HWY_INLINE Float tanh_of_scaled(Float z) {
  const FloatTag f;
  const Float clamped = hn::Min(hn::Max(z, hn::Set(f, -60.0f)), hn::Set(f, 60.0f));
  const Float one = hn::Set(f, 1.0f);
  return hn::Sub(one, hn::Div(hn::Set(f, 2.0f), hn::Add(exp2(clamped), one)));
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per target
