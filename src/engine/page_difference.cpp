#include "engine/page_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/element.h"
#include "store/host_pages.h"

namespace rhapsode::engine {

using kernels::kPageTokens;
using kernels::KvShape;
using kernels::read_element;

namespace {

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

Result<double> page_difference(const KvShape& shape, std::span<const store::PagePin> a,
                               std::span<const store::PagePin> b, int tokens) {
  RH_TRY(const store::HostPages left, store::HostPages::reading(a));
  RH_TRY(const store::HostPages right, store::HostPages::reading(b));
  double largest = 0;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      Sums keys;
      Sums values;
      for (int token = 0; token < tokens; ++token) {
        const int slot = token % kPageTokens;
        const auto x = page_head(shape, *left.pages()[token / kPageTokens], layer, head);
        const auto y = page_head(shape, *right.pages()[token / kPageTokens], layer, head);
        for (int i = 0; i < shape.head_dim; ++i) {
          const size_t key = kernels::key_index(shape.head_dim, slot, i);
          const size_t value = static_cast<size_t>(slot) * shape.head_dim + i;
          keys.add(read_element(shape.type, x.k, key, x.k_scale, slot),
                   read_element(shape.type, y.k, key, y.k_scale, slot));
          values.add(read_element(shape.type, x.v, value, x.v_scale, slot),
                     read_element(shape.type, y.v, value, y.v_scale, slot));
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
