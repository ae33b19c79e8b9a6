#include "recall/value_deviation.h"

#include "kernels/element.h"

namespace rhapsode::recall {

double value_deviation(const kernels::KvShape& shape, int layer, const kernels::Page& stored, int stored_slot,
                       const kernels::Page& fresh, int fresh_slot) {
  double sum = 0;
  for (int head = 0; head < shape.kv_heads; ++head) {
    const auto a = page_head(shape, stored, layer, head);
    const auto b = page_head(shape, fresh, layer, head);
    for (int i = 0; i < shape.head_dim; ++i) {
      const size_t at_a = static_cast<size_t>(stored_slot) * shape.head_dim + i;
      const size_t at_b = static_cast<size_t>(fresh_slot) * shape.head_dim + i;
      const double difference = kernels::read_element(shape.type, a.v, at_a, a.v_scale, stored_slot) -
                                kernels::read_element(shape.type, b.v, at_b, b.v_scale, fresh_slot);
      sum += difference * difference;
    }
  }
  return sum;
}

}  // namespace rhapsode::recall
