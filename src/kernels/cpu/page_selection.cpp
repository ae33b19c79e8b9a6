#include "kernels/cpu/page_selection.h"

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "kernels/cpu/bound_kernels.h"

namespace rhapsode::kernels::cpu {

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kRunPages = 32;  // pages a thread scores before it asks for more
// Values are grouped by exponent and two bits of their fraction: enough that few share a bucket.
constexpr int kBucketShift = 21;
constexpr size_t kBuckets = 1 << (31 - kBucketShift);

// What a row at `position` sees of a reference, as a reference that shows exactly that.
ResolvedReference narrowed(const ResolvedReference& resolved, int32_t position, int32_t window) {
  ResolvedReference seen = resolved;
  seen.reference.mask = visible_slots(resolved.reference, kPageTokens, position, window);
  seen.highest = std::min(seen.highest, position);
  if (window > 0 && !seen.reference.sink) seen.lowest = std::max(seen.lowest, position - window + 1);
  return seen;
}

// Groups above `value` are chosen, and the first `ties` of those at it.
struct Threshold {
  float value = kNothing;
  int ties = 0;
};

using Counts = std::array<int, kBuckets>;

// The value of the last group that has room. Values are never above 0, but for +inf: by the bits of their
// magnitudes they order like unsigned numbers, the best first. One pass counts buckets, the rest is done
// within the bucket that the last one falls into. `keys` is as long as `values`.
Threshold find_threshold(std::span<const float> values, int room, std::span<uint32_t> keys, Counts& counts) {
  counts.fill(0);
  int seen = 0;
  for (const float value : values) {
    if (value == kNothing) continue;
    const uint32_t key = value > 0 ? 0 : (std::bit_cast<uint32_t>(value) & 0x7fffffffu) + 1;
    keys[static_cast<size_t>(seen++)] = key;
    ++counts[key >> kBucketShift];
  }
  if (seen <= room) return {};
  size_t bucket = 0;
  int left = room;
  while (counts[bucket] < left) left -= counts[bucket++];
  const auto begin = keys.begin();
  const auto end =
      std::partition(begin, begin + seen, [&](uint32_t key) { return key >> kBucketShift == bucket; });
  const auto last = begin + left - 1;
  std::nth_element(begin, last, end);
  const auto better = static_cast<int>(std::count_if(begin, last, [&](uint32_t key) { return key < *last; }));
  return {*last == 0 ? -kNothing : -std::bit_cast<float>(*last - 1), left - better};
}

// Sets the first `count` set bits of `from` in `into`.
void take_first(std::span<const uint64_t> from, int count, std::span<uint64_t> into) {
  for (size_t i = 0; i < from.size() && count > 0; ++i) {
    for (uint64_t rest = from[i]; rest != 0 && count > 0; rest &= rest - 1, --count) {
      into[i] |= rest & -rest;
    }
  }
}

}  // namespace

// One row and list of pages. A *unit* is one choice: a KV head, or all of them.
struct PageSelector::Selection {
  int row = 0;
  int heads = 0;
  int32_t position = 0;
  int room = 0;                         // groups to be chosen
  std::vector<ResolvedReference> seen;  // in the order of the list
  std::vector<bool> always;             // [seen]
  std::vector<ResolvedReference> candidates;
  std::vector<float> scores;                           // [heads][stride]
  int stride = 0;                                      // groups of all candidates, padded to a multiple of 16
  int runs = 0;                                        // of candidates
  std::vector<std::vector<ResolvedReference>> chosen;  // [units]
  std::unique_ptr<std::atomic<int>[]> runs_left;       // [units]
  int units = 0;
};

struct PageSelector::ThreadMemory {
  std::vector<float> rotated;
  hwy::AlignedFreeUniquePtr<float[]> query;
  size_t query_size = 0;
  int extended_heads = -1;  // whose extended queries `query` holds: selection * kv_heads + kv_head
  int64_t extended_shift = kNotExtended;
  std::vector<float> value;  // of every group
  std::vector<uint32_t> keys;
  std::vector<uint64_t> above;  // bits of groups
  std::vector<uint64_t> equal;
  Counts counts;
};

PageSelector::PageSelector(const KvShape& shape, const SparseOptions& options)
    : shape_(shape), options_(options) {}

PageSelector::~PageSelector() = default;

void PageSelector::begin(const BatchPlan& plan) {
  plan_ = &plan;
  used_ = 0;
  unbounded_.clear();
  for (const RowWrite& write : plan.writes) {
    if (write.page != nullptr && write.page->bounds != nullptr) write.page->bounds->slots = 0;
  }
}

int PageSelector::add(int sequence_index, std::span<const ResolvedReference> references, int heads,
                      int32_t window) {
  const SequencePlan& sequence = plan_->sequences[static_cast<size_t>(sequence_index)];
  if (selections_.size() == used_) selections_.push_back(std::make_unique<Selection>());
  Selection& selection = *selections_[used_];
  selection.row = sequence.row_begin;
  selection.heads = heads;
  selection.position = plan_->positions[static_cast<size_t>(sequence.row_begin)];
  selection.seen.clear();
  selection.candidates.clear();
  std::vector<PageReference> plain;
  std::vector<uint64_t> visible;
  int tokens = 0;
  for (const ResolvedReference& resolved : references) {
    if (!may_see(resolved, selection.position, selection.position, window)) continue;
    const ResolvedReference seen = narrowed(resolved, selection.position, window);
    if (seen.reference.mask == 0) continue;
    selection.seen.push_back(seen);
    plain.push_back(seen.reference);
    visible.push_back(seen.reference.mask);
    tokens += std::popcount(seen.reference.mask);
  }
  if (tokens <= sequence.read_budget) return -1;
  selection.always = always_read(plain, visible, plan_->writes);
  int room = sequence.read_budget;
  for (size_t i = 0; i < plain.size(); ++i) {
    if (selection.always[i]) {
      room -= std::popcount(visible[i]);
    } else {
      selection.candidates.push_back(selection.seen[i]);
    }
  }
  selection.room = std::max(0, room) / options_.bounds.group_slots;
  for (const ResolvedReference& candidate : selection.candidates) {
    const Page& page = *candidate.reference.page;
    if (page.bounds->slots < page.count || page.bounds->layers < shape_.layers) unbounded_.push_back(&page);
  }
  return static_cast<int>(used_++);
}

void PageSelector::ready(int threads) {
  // Forks share pages: each is made once.
  std::sort(unbounded_.begin(), unbounded_.end());
  unbounded_.erase(std::unique(unbounded_.begin(), unbounded_.end()), unbounded_.end());
  for (const Page* page : unbounded_) {
    if (page->bounds->slots >= page->count) continue;  // an earlier pass broke off between two layers
    page->bounds->slots = page->count;
    page->bounds->layers = 0;
  }
  int most_heads = 1;
  size_t most_groups = 0;
  for (size_t s = 0; s < used_; ++s) {
    Selection& selection = *selections_[s];
    const auto count = selection.candidates.size();
    const auto groups = count * static_cast<size_t>(options_.bounds.groups());
    selection.stride = static_cast<int>((groups + 15) / 16 * 16);
    selection.runs = static_cast<int>(std::max<size_t>(1, (count + kRunPages - 1) / kRunPages));
    selection.scores.assign(static_cast<size_t>(selection.heads) * static_cast<size_t>(selection.stride),
                            kNothing);
    const int units = options_.scope == SelectionScope::kKvHead ? shape_.kv_heads : 1;
    if (selection.units != units) selection.runs_left = std::make_unique<std::atomic<int>[]>(units);
    selection.units = units;
    selection.chosen.resize(static_cast<size_t>(units));
    for (auto& list : selection.chosen) list.reserve(selection.seen.size());
    most_heads = std::max(most_heads, selection.heads / shape_.kv_heads);
    most_groups = std::max(most_groups, static_cast<size_t>(selection.stride));
  }
  while (any() && threads_.size() < static_cast<size_t>(threads)) {
    threads_.push_back(std::make_unique<ThreadMemory>());
  }
  for (const auto& memory : threads_) {
    memory->rotated.resize(static_cast<size_t>(shape_.head_dim));
    const auto elements = static_cast<size_t>(options_.bounds.row_elements(shape_.head_dim));
    const size_t query_size = static_cast<size_t>(most_heads) * elements;
    if (memory->query_size < query_size) {
      memory->query = hwy::AllocateAligned<float>(query_size);
      memory->query_size = query_size;
    }
    memory->value.resize(most_groups);
    memory->keys.resize(most_groups);
    memory->above.resize(most_groups / 64 + 1);
    memory->equal.resize(most_groups / 64 + 1);
  }
}

int PageSelector::most_references(int index) const {
  const Selection& selection = *selections_[static_cast<size_t>(index)];
  const auto candidates = static_cast<int>(selection.candidates.size());
  return static_cast<int>(selection.seen.size()) - candidates + std::min(candidates, selection.room);
}

void PageSelector::bound(int layer, int ith, int nth) {
  const BoundKernels& kernels = bound_kernels();
  for (size_t i = static_cast<size_t>(ith); i < unbounded_.size(); i += static_cast<size_t>(nth)) {
    const Page& page = *unbounded_[i];
    if (layer < page.bounds->layers) continue;
    for (int head = 0; head < shape_.kv_heads; ++head) {
      kernels.bound({&shape_, &options_.bounds, &page, page.bounds->slots, layer, head});
    }
    if (layer == page.bounds->layers) ++page.bounds->layers;
  }
}

void PageSelector::restart() {
  next_item_.store(0, std::memory_order_relaxed);
  for (size_t s = 0; s < used_; ++s) {
    Selection& selection = *selections_[s];
    const int runs = selection.runs * (shape_.kv_heads / selection.units);
    for (int unit = 0; unit < selection.units; ++unit) {
      selection.runs_left[static_cast<size_t>(unit)].store(runs, std::memory_order_relaxed);
    }
  }
}

void PageSelector::select(const AttendSite& site, const float* q, int64_t q_stride,
                          std::span<const int> selections, int ith) {
  ThreadMemory& memory = *threads_[static_cast<size_t>(ith)];
  memory.extended_heads = -1;
  int first = 0;  // item of the selection at hand
  int item = next_item_.fetch_add(1, std::memory_order_relaxed);
  for (const int index : selections) {
    Selection& selection = *selections_[static_cast<size_t>(index)];
    const int items = selection.runs * shape_.kv_heads;
    for (; item < first + items; item = next_item_.fetch_add(1, std::memory_order_relaxed)) {
      const int kv_head = (item - first) / selection.runs;
      const int heads = index * shape_.kv_heads + kv_head;
      if (std::exchange(memory.extended_heads, heads) != heads) memory.extended_shift = kNotExtended;
      score(selection, site, q + selection.row * q_stride, item - first, memory);
      const int unit = selection.units == 1 ? 0 : kv_head;
      auto& left = selection.runs_left[static_cast<size_t>(unit)];
      if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) choose(selection, unit, memory);
    }
    first += items;
  }
}

void PageSelector::score(Selection& selection, const AttendSite& site, const float* q, int item,
                         ThreadMemory& memory) {
  if (selection.room == 0) return;
  const int groups = options_.bounds.groups();
  const int kv_head = item / selection.runs;
  const size_t begin = static_cast<size_t>(item % selection.runs) * kRunPages;
  const size_t count = std::min<size_t>(kRunPages, selection.candidates.size() - begin);
  ScoreTask task;
  task.shape = &shape_;
  task.bounds = &options_.bounds;
  task.site = &site;
  task.kv_head = kv_head;
  task.heads = selection.heads / shape_.kv_heads;
  task.q = q + int64_t{kv_head} * task.heads * shape_.head_dim;
  task.position = selection.position;
  task.references = std::span(selection.candidates).subspan(begin, count);
  task.rotated = memory.rotated.data();
  task.query = memory.query.get();
  task.extended = &memory.extended_shift;
  task.stride = selection.stride;
  task.scores = selection.scores.data() + int64_t{kv_head} * task.heads * task.stride +
                static_cast<int64_t>(begin) * groups;
  bound_kernels().score(task);
  for (size_t r = 0; r < count; ++r) {
    const uint64_t mask = task.references[r].reference.mask;
    for (int group = 0; mask != ~0ull && group < groups; ++group) {
      if ((mask & group_mask(options_.bounds, group)) != 0) continue;
      for (int head = 0; head < task.heads; ++head) {
        task.scores[head * task.stride + static_cast<int64_t>(r) * groups + group] = kNothing;
      }
    }
  }
}

void PageSelector::choose(Selection& selection, int unit, ThreadMemory& memory) {
  std::fill(memory.above.begin(), memory.above.end(), 0);
  if (selection.room > 0) {
    const int heads = selection.heads / selection.units;
    const int64_t stride = selection.stride;
    bound_kernels().value(selection.scores.data() + int64_t{unit} * heads * stride, stride, heads,
                          selection.stride, memory.value.data());
    const auto values = std::span<const float>(memory.value).first(static_cast<size_t>(selection.stride));
    const Threshold threshold = find_threshold(values, selection.room, memory.keys, memory.counts);
    std::fill(memory.equal.begin(), memory.equal.end(), 0);
    bound_kernels().mark(memory.value.data(), selection.stride, threshold.value, memory.above.data(),
                         memory.equal.data());
    take_first(memory.equal, threshold.ties, memory.above);
  }
  collect(selection, unit, memory.above);
}

// The references that show the groups of `taken`, and what is always read.
void PageSelector::collect(Selection& selection, int unit, std::span<const uint64_t> taken) {
  const auto groups = static_cast<size_t>(options_.bounds.groups());
  auto& chosen = selection.chosen[static_cast<size_t>(unit)];
  chosen.clear();
  size_t candidate = 0;
  for (size_t i = 0; i < selection.seen.size(); ++i) {
    if (selection.always[i]) {
      chosen.push_back(selection.seen[i]);
      continue;
    }
    const size_t bit = groups * candidate++;  // the groups of a page never cross a word
    uint64_t of_page = taken[bit / 64] >> bit % 64 & ((1ull << groups) - 1);
    if (of_page == 0) continue;
    uint64_t slots = 0;
    for (; of_page != 0; of_page &= of_page - 1) {
      slots |= group_mask(options_.bounds, std::countr_zero(of_page));
    }
    chosen.push_back(selection.seen[i]);
    chosen.back().reference.mask &= slots;
  }
}

std::span<const ResolvedReference> PageSelector::selected(int index, int kv_head) const {
  const Selection& selection = *selections_[static_cast<size_t>(index)];
  return selection.chosen[static_cast<size_t>(selection.units == 1 ? 0 : kv_head)];
}

}  // namespace rhapsode::kernels::cpu
