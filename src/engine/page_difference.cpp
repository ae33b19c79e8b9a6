#include "engine/page_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/element.h"

namespace rhapsode::engine {

using kernels::kPageTokens;
using kernels::KvShape;
using kernels::KvType;

namespace {

double element(KvType type, const std::byte* data, size_t index, const float* scales, int slot) {
  switch (type) {
    case KvType::kF32: {
      float value = 0;
      std::memcpy(&value, data + index * 4, 4);
      return value;
    }
    case KvType::kI8:
      return static_cast<double>(static_cast<int8_t>(data[index])) * scales[slot];
    default: {
      uint16_t value = 0;
      std::memcpy(&value, data + index * 2, 2);
      return type == KvType::kF16 ? kernels::f16_to_f32(value) : kernels::bf16_to_f32(value);
    }
  }
}

struct Sums {
  double squares = 0;
  double differences = 0;

  void add(double a, double b) {
    squares += a * a;
    differences += (a - b) * (a - b);
  }
  double relative() const { return squares > 0 ? std::sqrt(differences / squares) : differences; }
};

}  // namespace

double page_difference(const KvShape& shape, std::span<const store::PagePin> a,
                       std::span<const store::PagePin> b, int tokens) {
  double largest = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      Sums keys;
      Sums values;
      for (int token = 0; token < tokens; ++token) {
        const int slot = token % kPageTokens;
        const auto x = page_head(shape, *a[token / kPageTokens].get(), layer, head);
        const auto y = page_head(shape, *b[token / kPageTokens].get(), layer, head);
        for (int i = 0; i < shape.head_dim; ++i) {
          const size_t key = kernels::key_index(shape.head_dim, slot, i);
          const size_t value = static_cast<size_t>(slot) * shape.head_dim + i;
          keys.add(element(shape.type, x.k, key, x.k_scale, slot),
                   element(shape.type, y.k, key, y.k_scale, slot));
          values.add(element(shape.type, x.v, value, x.v_scale, slot),
                     element(shape.type, y.v, value, y.v_scale, slot));
        }
      }
      for (double relative : {keys.relative(), values.relative()}) {
        if (std::isnan(relative)) return std::numeric_limits<double>::quiet_NaN();
        largest = std::max(largest, relative);
      }
    }
  }
  return largest;
}

}  // namespace rhapsode::engine
