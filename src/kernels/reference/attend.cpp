// The meaning of attend: double precision, one query head at a time, nothing clever.
#include "kernels/attend.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "kernels/element.h"
#include "kernels/reference/element_double.h"

namespace rhapsode::kernels::reference {
namespace {

constexpr double kEmpty = -std::numeric_limits<double>::infinity();

void store_element(KvType type, std::byte* data, size_t index, float value, float inverse_scale) {
  switch (type) {
    case KvType::kF32:
      reinterpret_cast<float*>(data)[index] = value;
      break;
    case KvType::kF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_f16(value);
      break;
    case KvType::kBF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_bf16(value);
      break;
    case KvType::kI8:
      reinterpret_cast<int8_t*>(data)[index] = quantize_i8(value, inverse_scale);
      break;
  }
}

// One visible key and what the softmax makes of it.
struct Scored {
  size_t reference;
  int slot;
  double score;
};

std::vector<Scored> score_row(const KvShape& shape, const AttendSite& site, const AttendRows& rows,
                              const std::vector<double>& frequencies, size_t row, int head) {
  const int d = shape.head_dim;
  const int kv_head = head / (site.heads / shape.kv_heads);
  const float* q = rows.q + static_cast<int64_t>(row) * rows.q_stride + static_cast<int64_t>(head) * d;
  std::vector<Scored> scored;
  std::vector<double> rotated;
  int64_t rotated_by = std::numeric_limits<int64_t>::max();
  for (size_t r = 0; r < rows.references.size(); ++r) {
    const PageReference& reference = rows.references[r];
    const int32_t position = rows.positions[row];
    uint64_t visible = visible_slots(reference, reference.page->count, position, site.window);
    if (visible != 0 && rotated_by != reference.shift) {
      rotated = rotate(site.rope->spec(), frequencies, q, d, int64_t{position} - reference.shift);
      rotated_by = reference.shift;
    }
    for (; visible != 0; visible &= visible - 1) {
      const int slot = std::countr_zero(visible);
      const PageHeadView view = page_head(shape, *reference.page, site.layer, kv_head);
      const float scale = view.k_scale ? view.k_scale[slot] : 1.0f;
      double score = 0.0;
      for (int i = 0; i < d; ++i) {
        score +=
            rotated[static_cast<size_t>(i)] * load_element(shape.type, view.k, key_index(d, slot, i), scale);
      }
      score *= site.scale;
      if (site.soft_cap > 0) score = site.soft_cap * std::tanh(score / site.soft_cap);
      scored.push_back({r, slot, score});
    }
  }
  return scored;
}

void attend_head(const KvShape& shape, const AttendSite& site, const AttendRows& rows,
                 const std::vector<double>& frequencies, size_t row, int head) {
  const int d = shape.head_dim;
  const int kv_head = head / (site.heads / shape.kv_heads);
  const std::vector<Scored> scored = score_row(shape, site, rows, frequencies, row, head);
  double max = kEmpty;
  for (const Scored& key : scored) max = std::max(max, key.score);
  double sum = 0.0;
  for (const Scored& key : scored) sum += std::exp(key.score - max);

  std::vector<double> result(static_cast<size_t>(d), 0.0);
  for (const Scored& key : scored) {
    const double probability = std::exp(key.score - max) / sum;
    const PageHeadView view = page_head(shape, *rows.references[key.reference].page, site.layer, kv_head);
    const float scale = view.v_scale ? view.v_scale[key.slot] : 1.0f;
    for (int i = 0; i < d; ++i) {
      const size_t index = static_cast<size_t>(key.slot) * static_cast<size_t>(d) + static_cast<size_t>(i);
      result[static_cast<size_t>(i)] += probability * load_element(shape.type, view.v, index, scale);
    }
    if (rows.mass_per_reference) rows.mass_per_reference[key.reference] += probability;
    if (rows.mass_per_token) {
      rows.mass_per_token[key.reference * kPageTokens + static_cast<size_t>(key.slot)] += probability;
    }
  }
  float* out = rows.out + static_cast<int64_t>(row) * rows.out_stride + static_cast<int64_t>(head) * d;
  std::copy(result.begin(), result.end(), out);
  if (rows.lse) {
    rows.lse[row * static_cast<size_t>(site.heads) + static_cast<size_t>(head)] =
        static_cast<float>(scored.empty() ? kEmpty : max + std::log(sum));
  }
}

float quantization_scale(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return static_cast<float>(largest / 127.0);
}

}  // namespace

double load_element(KvType type, const std::byte* data, size_t index, float scale) {
  switch (type) {
    case KvType::kF32:
      return reinterpret_cast<const float*>(data)[index];
    case KvType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    case KvType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    case KvType::kI8:
      return static_cast<double>(reinterpret_cast<const int8_t*>(data)[index]) * scale;
  }
  return 0.0;
}

std::vector<double> rotate(const RopeSpec& spec, const std::vector<double>& frequencies, const float* head,
                           int d, int64_t position) {
  std::vector<double> result(head, head + d);
  const size_t pairs = frequencies.size();
  const bool adjacent = spec.pairing == RopePairing::kAdjacent;
  const double magnitude = spec.magnitude();
  for (size_t pair = 0; pair < pairs; ++pair) {
    const size_t first = adjacent ? 2 * pair : pair;
    const size_t second = adjacent ? 2 * pair + 1 : pair + pairs;
    const double cosine = std::cos(static_cast<double>(position) * frequencies[pair]) * magnitude;
    const double sine = std::sin(static_cast<double>(position) * frequencies[pair]) * magnitude;
    const double a = result[first];
    const double b = result[second];
    result[first] = a * cosine - b * sine;
    result[second] = a * sine + b * cosine;
  }
  return result;
}

void attend(const KvShape& shape, const AttendSite& site, const AttendRows& rows) {
  assert(site.heads % shape.kv_heads == 0);
  const std::vector<double> frequencies = site.rope->spec().frequencies();
  for (size_t row = 0; row < rows.positions.size(); ++row) {
    for (int head = 0; head < site.heads; ++head) attend_head(shape, site, rows, frequencies, row, head);
  }
}

void write_row(const KvShape& shape, const AttendSite& site, const RowWrite& write, const float* k,
               const float* v) {
  if (write.page == nullptr) return;
  const int d = shape.head_dim;
  const std::vector<double> frequencies = site.rope->spec().frequencies();
  const int32_t position = write.page->positions[static_cast<size_t>(write.slot)];
  for (int head = 0; head < shape.kv_heads; ++head) {
    const PageHeadView view = page_head(shape, *write.page, site.layer, head);
    const std::vector<double> key = rotate(site.rope->spec(), frequencies, k + head * d, d, position);
    const std::vector<double> value(v + head * d, v + (head + 1) * d);
    const float k_scale = quantization_scale(key);
    const float v_scale = quantization_scale(value);
    if (view.k_scale) view.k_scale[write.slot] = k_scale;
    if (view.v_scale) view.v_scale[write.slot] = v_scale;
    for (int i = 0; i < d; ++i) {
      const auto index = static_cast<size_t>(i);
      store_element(shape.type, view.k, key_index(d, write.slot, i), static_cast<float>(key[index]),
                    k_scale > 0 ? 1.0f / k_scale : 0.0f);
      store_element(shape.type, view.v, static_cast<size_t>(write.slot) * static_cast<size_t>(d) + index,
                    static_cast<float>(value[index]), v_scale > 0 ? 1.0f / v_scale : 0.0f);
    }
  }
}

}  // namespace rhapsode::kernels::reference
