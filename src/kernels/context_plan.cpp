#include "kernels/context_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

namespace rhapsode::kernels {
namespace {

constexpr int kMaxHeadDim = 256;

// What a pass adds to one page.
struct Filling {
  int sequence = 0;
  uint64_t slots = 0;
};
using Fillings = std::unordered_map<const Page*, Filling>;

bool in_range(int64_t position) {
  return position >= -kMaxPosition && position <= kMaxPosition;
}

Status validate_shape(const KvShape& shape) {
  if (shape.layers <= 0 || shape.kv_heads <= 0 || shape.head_dim <= 0 || shape.head_dim % kKeyGroup != 0 ||
      shape.head_dim > kMaxHeadDim) {
    return make_error(
        ErrorKind::kUnsupported,
        "context plan: pages of {} layers x {} KV heads x {} dimensions cannot be read; the head "
        "dimension must be a multiple of {} and at most {}",
        shape.layers, shape.kv_heads, shape.head_dim, kKeyGroup, kMaxHeadDim);
  }
  return {};
}

Status validate_rows(const BatchPlan& plan) {
  if (plan.writes.size() != plan.positions.size()) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: {} rows have positions but {} have writes",
                      plan.positions.size(), plan.writes.size());
  }
  if (plan.positions.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return make_error(ErrorKind::kTooLarge, "context plan: {} rows in one batch", plan.positions.size());
  }
  for (size_t row = 0; row < plan.positions.size(); ++row) {
    if (!in_range(plan.positions[row])) {
      return make_error(ErrorKind::kTooLarge, "context plan: row {} has position {}, beyond {}", row,
                        plan.positions[row], kMaxPosition);
    }
  }
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const SequencePlan& sequence = plan.sequences[s];
    const int64_t begin = sequence.row_begin;
    const int64_t end = begin + sequence.row_count;
    if (begin < 0 || sequence.row_count < 0 || end > plan.rows()) {
      return make_error(ErrorKind::kInvalidArgument,
                        "context plan: sequence {} owns rows [{}, {}) of a batch of {}", s, begin, end,
                        plan.rows());
    }
    if (sequence.row_count > 0) ranges.emplace_back(begin, end);
  }
  std::sort(ranges.begin(), ranges.end());
  int64_t next = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != next) {
      return make_error(ErrorKind::kInvalidArgument, "context plan: row {} belongs to {} sequence",
                        std::min(begin, next), begin > next ? "no" : "more than one");
    }
    next = end;
  }
  if (next != plan.rows()) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: row {} belongs to no sequence", next);
  }
  return {};
}

Status validate_write(const BatchPlan& plan, int sequence, int row, Fillings& fillings) {
  const RowWrite& write = plan.writes[static_cast<size_t>(row)];
  const Page* page = write.page;
  if (page == nullptr) return {};
  if (page->data == nullptr || page->count < 0 || page->count > kPageTokens) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: row {} writes to a page without storage",
                      row);
  }
  const bool filled = write.slot < page->count;
  if (write.slot < 0 || write.slot >= kPageTokens || filled != write.replaces) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: row {} {} slot {} of a page with {} filled slots of {}", row,
                      write.replaces ? "replaces" : "writes", write.slot, page->count, kPageTokens);
  }
  const auto slot = static_cast<size_t>(write.slot);
  if (!in_range(page->positions[slot])) {
    return make_error(ErrorKind::kTooLarge, "context plan: row {} is stored at frame position {}, beyond {}",
                      row, page->positions[slot], kMaxPosition);
  }
  if (page->consecutive && page->positions[slot] != page->positions[0] + write.slot) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: slot {} of a consecutive page from {} has frame position {}", write.slot,
                      page->positions[0], page->positions[slot]);
  }
  Filling& filling = fillings.try_emplace(page, Filling{sequence, 0}).first->second;
  if (filling.sequence != sequence) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: sequences {} and {} write to the same page",
                      filling.sequence, sequence);
  }
  if (filling.slots >> slot & 1u) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: row {} writes slot {} a second time", row,
                      write.slot);
  }
  filling.slots |= 1ull << slot;
  return {};
}

Status validate_writes(const BatchPlan& plan, Fillings& fillings) {
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const SequencePlan& sequence = plan.sequences[s];
    for (int row = sequence.row_begin; row < sequence.row_begin + sequence.row_count; ++row) {
      RH_TRY_STATUS(validate_write(plan, static_cast<int>(s), row, fillings));
    }
  }
  for (const auto& [page, filling] : fillings) {
    const uint64_t filled = first_slots(page->count) | filling.slots;
    if ((filled & (filled + 1)) != 0) {
      return make_error(ErrorKind::kInvalidArgument,
                        "context plan: sequence {} leaves slot {} of a page empty below slots it fills",
                        filling.sequence, std::countr_one(filled));
    }
  }
  return {};
}

// What the visible slots of a page, one at least, say about their frame positions.
struct Span {
  int64_t lowest_frame = 0;
  int64_t highest_frame = 0;
  bool consecutive = true;
};

// Long contexts have thousands of pages a step: where the positions do count up, two of them tell all.
Span span_of(const PageReference& reference, uint64_t visible) {
  const auto& positions = reference.page->positions;
  const int last = 63 - std::countl_zero(visible);
  int32_t differing = 0;
  for (int32_t slot = 0; slot <= last; ++slot) {
    const auto distance = static_cast<uint32_t>(positions[static_cast<size_t>(slot)]) -
                          static_cast<uint32_t>(positions[0]);  // wraps where bytes are hostile
    differing |= static_cast<int32_t>(distance) ^ slot;
  }
  const auto at = [&](int slot) { return int64_t{positions[static_cast<size_t>(slot)]}; };
  if (differing == 0 && at(0) <= at(last)) return {at(std::countr_zero(visible)), at(last), true};
  Span span{at(last), at(last), true};
  for (uint64_t rest = visible; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    span.lowest_frame = std::min(span.lowest_frame, at(slot));
    span.highest_frame = std::max(span.highest_frame, at(slot));
    span.consecutive = span.consecutive && at(slot) - at(0) == slot;
  }
  return span;
}

// Finds the lowest position that one reference lets anybody see, or kMaxPosition + 1.
Result<int64_t> first_visible(const PageReference& reference, int sequence, const Fillings& fillings) {
  const Page* page = reference.page;
  if (page == nullptr || page->data == nullptr || page->count < 0 || page->count > kPageTokens) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: sequence {} refers to a page without storage", sequence);
  }
  const auto found = fillings.find(page);
  const uint64_t fresh = found == fillings.end() ? 0 : found->second.slots;
  if (fresh != 0 && found->second.sequence != sequence && (reference.mask & fresh) != 0) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "context plan: sequence {} would see slots that sequence {} is writing; clear them in its mask",
        sequence, found->second.sequence);
  }
  const uint64_t filled = first_slots(page->count) | fresh;
  const uint64_t visible = reference.mask & filled;
  if (visible == 0 && reference.mask != 0) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "context plan: sequence {} refers to slots {:#x} of a page of which only {:#x} are filled", sequence,
        reference.mask, filled);
  }
  if (visible == 0) return int64_t{kMaxPosition} + 1;
  const Span span = span_of(reference, visible);
  if (!in_range(reference.shift) || !in_range(span.lowest_frame) || !in_range(span.highest_frame) ||
      !in_range(span.lowest_frame + reference.shift) || !in_range(span.highest_frame + reference.shift)) {
    const bool low = span.lowest_frame + reference.shift < 0;
    return make_error(ErrorKind::kTooLarge,
                      "context plan: sequence {} places frame position {} at shift {}, beyond {}", sequence,
                      low ? span.lowest_frame : span.highest_frame, reference.shift, kMaxPosition);
  }
  if (page->consecutive && !span.consecutive) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: a page that sequence {} reads calls itself consecutive and is not",
                      sequence);
  }
  return span.lowest_frame + reference.shift;
}

Status validate_list(const BatchPlan& plan, int s, std::span<const PageReference> references,
                     const Fillings& fillings) {
  const SequencePlan& sequence = plan.sequences[static_cast<size_t>(s)];
  int64_t lowest = int64_t{kMaxPosition} + 1;
  for (const PageReference& reference : references) {
    RH_TRY(const int64_t position, first_visible(reference, s, fillings));
    lowest = std::min(lowest, position);
  }
  for (int row = sequence.row_begin; row < sequence.row_begin + sequence.row_count; ++row) {
    const int32_t position = plan.positions[static_cast<size_t>(row)];
    if (position < lowest) {
      return make_error(
          ErrorKind::kInvalidArgument,
          "context plan: row {} at position {} can see nothing: the first key of sequence {} is later", row,
          position, s);
    }
  }
  return {};
}

Status validate_budget(const SequencePlan& sequence, int s) {
  if (sequence.read_budget == 0) return {};
  if (sequence.read_budget < 0 || sequence.row_count > 1) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: sequence {} has a read budget of {} tokens for {} rows; it must be "
                      "positive and is for decode steps of one row",
                      s, sequence.read_budget, sequence.row_count);
  }
  const auto unbounded = [](const PageReference& reference) {
    return reference.page == nullptr || reference.page->bounds == nullptr;
  };
  const auto any_unbounded = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), unbounded);
  };
  if (any_unbounded(sequence.references) ||
      std::any_of(sequence.own_lists.begin(), sequence.own_lists.end(), any_unbounded)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "context plan: sequence {} has a read budget, but its pages have no room for bounds",
                      s);
  }
  return {};
}

Status validate_layers(const SequencePlan& sequence, int s, const KvShape& shape) {
  if (sequence.own_index.empty()) return {};
  if (sequence.own_index.size() != static_cast<size_t>(shape.layers)) {
    return make_error(ErrorKind::kInvalidArgument, "context plan: sequence {} has lists for {} layers of {}",
                      s, sequence.own_index.size(), shape.layers);
  }
  for (const int16_t index : sequence.own_index) {
    if (index >= 0 && static_cast<size_t>(index) >= sequence.own_lists.size()) {
      return make_error(ErrorKind::kInvalidArgument, "context plan: sequence {} names page list {} of {}", s,
                        index, sequence.own_lists.size());
    }
  }
  return {};
}

}  // namespace

Status validate(const BatchPlan& plan, const KvShape& shape) {
  RH_TRY_STATUS(validate_shape(shape));
  RH_TRY_STATUS(validate_rows(plan));
  Fillings fillings;
  RH_TRY_STATUS(validate_writes(plan, fillings));
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const SequencePlan& sequence = plan.sequences[s];
    const int index = static_cast<int>(s);
    RH_TRY_STATUS(validate_layers(sequence, index, shape));
    const bool shared_is_read =
        sequence.own_index.empty() ||
        std::any_of(sequence.own_index.begin(), sequence.own_index.end(), [](int16_t i) { return i < 0; });
    if (shared_is_read) RH_TRY_STATUS(validate_list(plan, index, sequence.references, fillings));
    for (const auto& list : sequence.own_lists) RH_TRY_STATUS(validate_list(plan, index, list, fillings));
    RH_TRY_STATUS(validate_budget(sequence, index));
  }
  return {};
}

uint64_t visible_slots(const PageReference& reference, int filled, int32_t position, int32_t window) {
  const Page& page = *reference.page;
  const uint64_t candidates = reference.mask & first_slots(filled);
  const bool windowed = window > 0 && !reference.sink;
  if (page.consecutive) {
    const int64_t first = int64_t{reference.shift} + page.positions[0];
    const int64_t reached = int64_t{position} - first + 1;  // slots at or before the row
    if (reached <= 0) return 0;
    uint64_t visible = candidates & first_slots(static_cast<int>(std::min<int64_t>(reached, kPageTokens)));
    if (windowed && reached > window) {
      visible &= ~first_slots(static_cast<int>(std::min<int64_t>(reached - window, kPageTokens)));
    }
    return visible;
  }
  uint64_t visible = 0;
  for (uint64_t rest = candidates; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const int64_t distance = int64_t{position} - reference.shift - page.positions[static_cast<size_t>(slot)];
    if (distance >= 0 && (!windowed || distance < window)) visible |= 1ull << slot;
  }
  return visible;
}

}  // namespace rhapsode::kernels
