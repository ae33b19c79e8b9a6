// The meaning of page bounds and of the choice made with them: double precision, plain loops.
#include "kernels/page_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/attend.h"
#include "kernels/element.h"
#include "kernels/reference/element_double.h"

namespace rhapsode::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Row = std::vector<double>;

void bound_group(const BoundsShape& bounds, const std::vector<Row>& keys, int group, uint16_t* row) {
  const size_t d = keys.empty() ? 0 : keys.front().size();
  const auto groups = static_cast<size_t>(bounds.groups());
  const auto at = [&](size_t index) -> uint16_t& { return row[index * groups + static_cast<size_t>(group)]; };
  const bool ball = bounds.kind == BoundKind::kBall;
  double radius = 0.0;
  Row centre(d);
  for (size_t i = 0; i < d; ++i) {
    double low = kInfinity;
    double high = -kInfinity;
    double sum = 0.0;
    for (const Row& key : keys) {
      low = std::min(low, key[i]);
      high = std::max(high, key[i]);
      sum += key[i];
    }
    const bool box = bounds.kind == BoundKind::kBox;
    at(i) = f32_to_f16(static_cast<float>(box ? (low + high) / 2 : sum / static_cast<double>(keys.size())));
    centre[i] = f16_to_f32(at(i));
    if (!ball) at(d + i) = f16_at_least(std::max(high - centre[i], centre[i] - low));
  }
  if (!ball) return;
  for (const Row& key : keys) {
    double square = 0.0;
    for (size_t i = 0; i < d; ++i) square += (key[i] - centre[i]) * (key[i] - centre[i]);
    radius = std::max(radius, std::sqrt(square));
  }
  at(d) = f16_at_least(radius);
}

// [heads][references * groups] bounds; -inf where the row sees nothing.
std::vector<Row> bounds_of_row(const KvShape& shape, const SparseOptions& options, const AttendSite& site,
                               const SparseRow& row, const std::vector<uint64_t>& visible) {
  const BoundsShape& bounds = options.bounds;
  const int group_heads = site.heads / shape.kv_heads;
  std::vector<Row> scores(static_cast<size_t>(site.heads));
  for (int head = 0; head < site.heads; ++head) {
    for (size_t r = 0; r < row.references.size(); ++r) {
      const PageReference& reference = row.references[r];
      const std::vector<double> q =
          rotate(site.rope->spec(), site.rope->spec().frequencies(), row.q + head * shape.head_dim,
                 shape.head_dim, int64_t{row.position} - reference.shift);
      const uint16_t* stored = bounds_of_head(shape, bounds, *reference.page, site.layer, head / group_heads);
      for (int group = 0; group < bounds.groups(); ++group) {
        const bool seen = (visible[r] & group_mask(bounds, group)) != 0;
        const double bound = seen ? score_bound(shape, bounds, stored, group, q) * site.scale : -kInfinity;
        scores[static_cast<size_t>(head)].push_back(std::isnan(bound) ? kInfinity : bound);
      }
    }
  }
  return scores;
}

// The value of each group to readers of the heads [begin, end).
Row value_of_groups(const std::vector<Row>& scores, const std::vector<bool>& always, int groups, int begin,
                    int end) {
  Row value(scores.front().size(), -kInfinity);
  for (int head = begin; head < end; ++head) {
    const Row& score = scores[static_cast<size_t>(head)];
    double largest = -kInfinity;
    for (size_t i = 0; i < score.size(); ++i) {
      const bool counts = !always[i / static_cast<size_t>(groups)] && score[i] < kInfinity;
      if (counts) largest = std::max(largest, score[i]);
    }
    for (size_t i = 0; i < score.size(); ++i) {
      if (score[i] == -kInfinity) continue;
      value[i] = std::max(value[i], score[i] == kInfinity ? kInfinity : score[i] - largest);
    }
  }
  return value;
}

}  // namespace

void bound_page(const KvShape& shape, const BoundsShape& bounds, const Page& page, int layer) {
  for (int head = 0; head < shape.kv_heads; ++head) {
    uint16_t* row = bounds_of_head(shape, bounds, page, layer, head);
    std::fill_n(row, bounds.row_elements(shape.head_dim), uint16_t{0});
    const PageHeadView view = page_head(shape, page, layer, head);
    for (int group = 0; group < bounds.groups(); ++group) {
      std::vector<Row> keys;
      const int begin = group * bounds.group_slots;
      for (int slot = begin; slot < std::min(page.count, begin + bounds.group_slots); ++slot) {
        Row key;
        const float scale = view.k_scale ? view.k_scale[slot] : 1.0f;
        for (int i = 0; i < shape.head_dim; ++i) {
          key.push_back(load_element(shape.type, view.k, key_index(shape.head_dim, slot, i), scale));
        }
        keys.push_back(std::move(key));
      }
      if (!keys.empty()) bound_group(bounds, keys, group, row);
    }
  }
}

double score_bound(const KvShape& shape, const BoundsShape& bounds, const uint16_t* row, int group,
                   std::span<const double> q) {
  const int d = shape.head_dim;
  const auto at = [&](int index) {
    return static_cast<double>(f16_to_f32(row[index * bounds.groups() + group]));
  };
  const bool ball = bounds.kind == BoundKind::kBall;
  double bound = 0.0;
  double square = 0.0;
  for (int i = 0; i < d; ++i) {
    const double query = q[static_cast<size_t>(i)];
    bound += query * at(i);
    if (!ball) bound += bounds.radius_weight() * std::abs(query) * at(d + i);
    square += query * query;
  }
  return ball ? bound + std::sqrt(square) * at(d) : bound;
}

std::vector<std::vector<PageReference>> select(const KvShape& shape, const SparseOptions& options,
                                               const AttendSite& site, const SparseRow& row) {
  const int groups = options.bounds.groups();
  std::vector<uint64_t> visible;
  int tokens = 0;
  for (const PageReference& reference : row.references) {
    visible.push_back(visible_slots(reference, reference.page->count, row.position, site.window));
    tokens += std::popcount(visible.back());
  }
  std::vector<std::vector<PageReference>> chosen(
      static_cast<size_t>(shape.kv_heads),
      std::vector<PageReference>(row.references.begin(), row.references.end()));
  if (tokens <= row.budget) return chosen;
  const std::vector<bool> always = always_read(row.references, visible, row.writes);
  int room = row.budget;
  for (size_t r = 0; r < always.size(); ++r) {
    if (always[r]) room -= std::popcount(visible[r]);
  }
  room = std::max(0, room) / options.bounds.group_slots;
  const std::vector<Row> scores = bounds_of_row(shape, options, site, row, visible);
  const int group_heads = site.heads / shape.kv_heads;
  for (int head = 0; head < shape.kv_heads; ++head) {
    const bool own = options.scope == SelectionScope::kKvHead;
    const Row value = value_of_groups(scores, always, groups, own ? head * group_heads : 0,
                                      own ? (head + 1) * group_heads : site.heads);
    std::vector<size_t> order(value.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value[a] > value[b]; });
    auto& list = chosen[static_cast<size_t>(head)];
    for (size_t r = 0; r < list.size(); ++r) list[r].mask = always[r] ? visible[r] : 0;
    int left = room;
    for (const size_t i : order) {
      const size_t r = i / static_cast<size_t>(groups);
      if (left == 0 || value[i] == -kInfinity) break;
      if (always[r]) continue;
      list[r].mask |= visible[r] & group_mask(options.bounds, static_cast<int>(i) % groups);
      --left;
    }
    std::erase_if(list, [](const PageReference& reference) { return reference.mask == 0; });
  }
  return chosen;
}

}  // namespace rhapsode::kernels::reference
