// Sizeless vectors have no size at compile time; SSSE3 machines take the next lower path.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)

#include "store/kv_quantize.h"

#include "base/kernel_choice.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "store/kv_quantize.cpp"
#include "hwy/foreach_target.h"
// foreach_target comes before the other per-target headers.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rhapsode::store {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::kKeyGroup;

// At most 16 lanes: a group of keys fills whole vectors.
using FloatTag = hn::CappedTag<float, kKeyGroup>;
using Float = hn::Vec<FloatTag>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
constexpr float kSmallestScale = 0x1p-126f;

struct F32 {
  using Storage = float;
  static HWY_INLINE Float load(const float* in) { return hn::LoadU(FloatTag(), in); }
  static HWY_INLINE void store(Float value, float* out) { hn::StoreU(value, FloatTag(), out); }
};

struct F16 {
  using Storage = uint16_t;
  using Half = hn::Rebind<hwy::float16_t, FloatTag>;
  static HWY_INLINE Float load(const uint16_t* in) {
    return hn::PromoteTo(FloatTag(), hn::LoadU(Half(), reinterpret_cast<const hwy::float16_t*>(in)));
  }
  static HWY_INLINE void store(Float value, uint16_t* out) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || (HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4)
    // Highway's emulation truncates.
    float lanes[kKeyGroup];
    hn::StoreU(value, FloatTag(), lanes);
    for (int i = 0; i < kLanes; ++i) out[i] = kernels::f32_to_f16(lanes[i]);
#else
    hn::StoreU(hn::DemoteTo(Half(), value), Half(), reinterpret_cast<hwy::float16_t*>(out));
#endif
  }
};

struct BF16 {
  using Storage = uint16_t;
  using Bits = hn::RebindToUnsigned<FloatTag>;
  using Half = hn::Rebind<uint16_t, FloatTag>;
  static HWY_INLINE Float load(const uint16_t* in) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), hn::LoadU(Half(), in))));
  }
  // To nearest, ties to even; int8 times a finite scale is never NaN.
  static HWY_INLINE void store(Float value, uint16_t* out) {
    const auto bits = hn::BitCast(Bits(), value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Bits(), 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(Bits(), 0x7fff))));
    const hn::RebindToSigned<Bits> ints;
    hn::StoreU(hn::DemoteTo(Half(), hn::BitCast(ints, rounded)), Half(), out);
  }
};

HWY_INLINE void store_i8(Float scaled, int8_t* out) {
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<int8_t, FloatTag> bytes;
  const auto clamped = hn::Max(hn::Min(hn::NearestInt(scaled), hn::Set(ints, 127)), hn::Set(ints, -127));
  hn::StoreU(hn::DemoteTo(bytes, clamped), bytes, out);
}

HWY_INLINE Float load_i8(const int8_t* in) {
  const hn::RebindToSigned<FloatTag> ints;
  const hn::Rebind<int8_t, FloatTag> bytes;
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(ints, hn::LoadU(bytes, in)));
}

// The larger, or NaN if the new value is one: Highway's Max may drop it.
HWY_INLINE Float max_magnitude(Float largest, Float value) {
  const Float magnitude = hn::Abs(value);
  return hn::IfThenElse(hn::Lt(magnitude, largest), largest,
                        hn::IfThenElse(hn::Eq(largest, largest), magnitude, largest));
}

HWY_INLINE Float scale_of(Float largest) {
  const FloatTag f;
  const Float scale = hn::Div(largest, hn::Set(f, 127.0f));
  return hn::IfThenZeroElse(hn::Lt(scale, hn::Set(f, kSmallestScale)), scale);
}

HWY_INLINE Float inverse_of(Float scale) {
  const FloatTag f;
  const auto none = hn::Eq(scale, hn::Zero(f));
  return hn::IfThenZeroElse(none, hn::Div(hn::Set(f, 1.0f), scale));
}

template <class Type>
void quantize_keys_of(const KvHeadShape& shape, const std::byte* in, int8_t* HWY_RESTRICT out,
                      float* HWY_RESTRICT scales) {
  const auto* keys = reinterpret_cast<const typename Type::Storage*>(in);
  const int group = shape.head_dim * kKeyGroup;
  for (int begin = 0; begin < shape.count * group; begin += group, scales += kKeyGroup) {
    for (int lane = 0; lane < kKeyGroup; lane += kLanes) {
      Float largest = hn::Zero(FloatTag());
      for (int i = lane; i < group; i += kKeyGroup) {
        largest = max_magnitude(largest, Type::load(keys + begin + i));
      }
      const Float scale = scale_of(largest);
      const Float inverse = inverse_of(scale);
      hn::StoreU(scale, FloatTag(), scales + lane);
      for (int i = lane; i < group; i += kKeyGroup) {
        store_i8(hn::Mul(Type::load(keys + begin + i), inverse), out + begin + i);
      }
    }
  }
}

template <class Type>
void quantize_values_of(const KvHeadShape& shape, const std::byte* in, int8_t* HWY_RESTRICT out,
                        float* HWY_RESTRICT scales) {
  const FloatTag f;
  const auto* values = reinterpret_cast<const typename Type::Storage*>(in);
  const int d = shape.head_dim;
  for (int row = 0; row < shape.count; ++row, values += d, out += d) {
    float lanes[kKeyGroup];
    Float largest = hn::Zero(f);
    for (int i = 0; i < d; i += kLanes) largest = max_magnitude(largest, Type::load(values + i));
    hn::StoreU(largest, f, lanes);
    float highest = lanes[0];
    for (int i = 1; i < kLanes; ++i) highest = lanes[i] < highest || highest != highest ? highest : lanes[i];
    const Float scale = scale_of(hn::Set(f, highest));
    const Float inverse = inverse_of(scale);
    scales[row] = hn::GetLane(scale);
    for (int i = 0; i < d; i += kLanes) store_i8(hn::Mul(Type::load(values + i), inverse), out + i);
  }
}

template <class Type>
void widen_keys_of(const KvHeadShape& shape, const int8_t* in, const float* scales,
                   std::byte* HWY_RESTRICT out) {
  auto* keys = reinterpret_cast<typename Type::Storage*>(out);
  const int group = shape.head_dim * kKeyGroup;
  for (int begin = 0; begin < shape.count * group; begin += group, scales += kKeyGroup) {
    for (int lane = 0; lane < kKeyGroup; lane += kLanes) {
      const Float scale = hn::LoadU(FloatTag(), scales + lane);
      for (int i = begin + lane; i < begin + group; i += kKeyGroup) {
        Type::store(hn::Mul(load_i8(in + i), scale), keys + i);
      }
    }
  }
}

template <class Type>
void widen_values_of(const KvHeadShape& shape, const int8_t* in, const float* scales,
                     std::byte* HWY_RESTRICT out) {
  auto* values = reinterpret_cast<typename Type::Storage*>(out);
  const int d = shape.head_dim;
  for (int row = 0; row < shape.count; ++row, in += d, values += d) {
    const Float scale = hn::Set(FloatTag(), scales[row]);
    for (int i = 0; i < d; i += kLanes) Type::store(hn::Mul(load_i8(in + i), scale), values + i);
  }
}

// Calls function(F32()), function(F16()) or function(BF16()).
template <class Function>
HWY_INLINE void with_type(kernels::KvType type, const Function& function) {
  switch (type) {
    case kernels::KvType::kF32:
      return function(F32());
    case kernels::KvType::kF16:
      return function(F16());
    case kernels::KvType::kBF16:
      return function(BF16());
    case kernels::KvType::kI8:
      return;  // the caller copies int8
  }
}

void quantize_keys(const KvHeadShape& shape, const std::byte* in, int8_t* out, float* scales) {
  with_type(shape.type, [&](auto type) { quantize_keys_of<decltype(type)>(shape, in, out, scales); });
}

void quantize_values(const KvHeadShape& shape, const std::byte* in, int8_t* out, float* scales) {
  with_type(shape.type, [&](auto type) { quantize_values_of<decltype(type)>(shape, in, out, scales); });
}

void widen_keys(const KvHeadShape& shape, const int8_t* in, const float* scales, std::byte* out) {
  with_type(shape.type, [&](auto type) { widen_keys_of<decltype(type)>(shape, in, scales, out); });
}

void widen_values(const KvHeadShape& shape, const int8_t* in, const float* scales, std::byte* out) {
  with_type(shape.type, [&](auto type) { widen_values_of<decltype(type)>(shape, in, scales, out); });
}

}  // namespace

const KvQuantizeKernels* kv_quantize_of_target() {
  static const KvQuantizeKernels kKernels{hwy::TargetName(HWY_TARGET), quantize_keys, quantize_values,
                                          widen_keys, widen_values};
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace rhapsode::store
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rhapsode::store {
HWY_EXPORT(kv_quantize_of_target);

namespace {

const KvQuantizeKernels* best_kv_quantize() {
  return HWY_DYNAMIC_DISPATCH(kv_quantize_of_target)();
}

using Choice = KernelChoice<KvQuantizeKernels, best_kv_quantize>;

}  // namespace

const KvQuantizeKernels& kv_quantize_kernels() {
  return Choice::get();
}

bool force_kv_quantize_target(std::string_view name) {
  return Choice::force(name);
}

}  // namespace rhapsode::store
#endif  // HWY_ONCE
