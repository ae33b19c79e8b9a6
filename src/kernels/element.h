// Scalar conversions between float and the element types of a page.
//
// Rounding is to nearest, ties to even; values beyond a type's range become infinities (f16, bf16); NaN stays
// NaN. int8 rows carry one scale for head_dim values: value = int8 * scale, scale = max |value| / 127. Used
// by the reference, by tests and by the tails of vector code. Pure functions; a few nanoseconds each.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/page.h"

namespace rhapsode::kernels {

inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | (mantissa << 13));
}

inline uint16_t f32_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or more
  if (magnitude <
      0x38800000u) {  // subnormal: adding 0.5 rounds to multiples of 2^-24 in the low mantissa bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// The smallest float16 that is no less than a value that is not negative; infinity beyond the type.
inline uint16_t f16_at_least(double value) {
  const uint16_t half = f32_to_f16(static_cast<float>(value));
  return static_cast<double>(f16_to_f32(half)) < value ? static_cast<uint16_t>(half + 1) : half;
}

inline float bf16_to_f32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The int8 of a value under 1 / scale.
inline int8_t quantize_i8(float value, float inverse_scale) {
  const float scaled = std::nearbyintf(value * inverse_scale);
  return static_cast<int8_t>(std::fmin(std::fmax(scaled, -127.0f), 127.0f));
}

// Element `index` of a page's K or V; `scales` [64] and `slot` matter to int8 pages only.
inline float read_element(KvType type, const std::byte* data, size_t index, const float* scales, int slot) {
  switch (type) {
    case KvType::kF32: {
      float value = 0;
      std::memcpy(&value, data + index * sizeof(float), sizeof(float));
      return value;
    }
    case KvType::kI8:
      return static_cast<float>(static_cast<int8_t>(data[index])) * scales[slot];
    default: {
      uint16_t value = 0;
      std::memcpy(&value, data + index * sizeof(uint16_t), sizeof(uint16_t));
      return type == KvType::kF16 ? f16_to_f32(value) : bf16_to_f32(value);
    }
  }
}

}  // namespace rhapsode::kernels
