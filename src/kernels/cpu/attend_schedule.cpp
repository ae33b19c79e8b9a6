#include "kernels/cpu/attend_schedule.h"

#include <algorithm>
#include <bit>

namespace rhapsode::kernels::cpu {
namespace {

constexpr int kItemsPerThread = 4;     // enough for the counter to balance threads of unequal speed
constexpr int kSmallestPartPages = 4;  // below it merging costs more than a thread gains
constexpr int kSmallestBlockCost =
    6;  // rows: a page of one row takes about as long as of a full register block

ResolvedReference resolve(const PageReference& reference, int32_t filled) {
  ResolvedReference resolved{reference, 0, -1};
  resolved.reference.mask &= filled >= kPageTokens ? ~0ull : (1ull << filled) - 1;
  const uint64_t mask = resolved.reference.mask;
  if (mask == 0) return resolved;
  const Page& page = *reference.page;
  if (page.consecutive) {
    resolved.lowest = reference.shift + page.positions[0] + std::countr_zero(mask);
    resolved.highest = reference.shift + page.positions[0] + kPageTokens - 1 - std::countl_zero(mask);
    return resolved;
  }
  resolved.lowest = INT32_MAX;
  resolved.highest = INT32_MIN;
  for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
    const int32_t position = reference.shift + page.positions[static_cast<size_t>(std::countr_zero(rest))];
    resolved.lowest = std::min(resolved.lowest, position);
    resolved.highest = std::max(resolved.highest, position);
  }
  return resolved;
}

// Sets the range of references that the block may see and returns how many of them it does see.
int find_references(std::span<const ResolvedReference> references, int32_t window, RowBlock& block) {
  int seen = 0;
  for (int i = 0; i < static_cast<int>(references.size()); ++i) {
    if (!may_see(references[static_cast<size_t>(i)], block.lowest, block.highest, window)) continue;
    if (seen++ == 0) block.reference_begin = i;
    block.reference_end = i + 1;
  }
  return seen;
}

void add_blocks(const BatchPlan& plan, int sequence_index, std::span<const ResolvedReference> references,
                int group, Schedule& schedule) {
  const SequencePlan& sequence = plan.sequences[static_cast<size_t>(sequence_index)];
  const int rows = sequence.row_count * group;
  const auto first = plan.positions.begin() + sequence.row_begin;
  for (int begin = 0; begin < rows; begin += kBlockRows) {
    RowBlock block;
    block.sequence = sequence_index;
    block.list = schedule.lists[static_cast<size_t>(sequence_index)];
    block.row_begin = begin;
    block.row_count = std::min(kBlockRows, rows - begin);
    const auto [lowest, highest] =
        std::minmax_element(first + begin / group, first + (begin + block.row_count - 1) / group + 1);
    block.lowest = *lowest;
    block.highest = *highest;
    WorkItem item{static_cast<int>(schedule.blocks.size()), 0, 1, 0};
    const ReadLimit limit =
        schedule.limits.empty() ? ReadLimit{} : schedule.limits[static_cast<size_t>(sequence_index)];
    if (limit.selection >= 0) {
      block.selection = limit.selection;
      block.reference_end = limit.references;
    }
    const int seen =
        limit.selection >= 0 ? limit.references : find_references(references, schedule.window, block);
    item.cost = int64_t{seen} * std::max(block.row_count, kSmallestBlockCost);
    schedule.blocks.push_back(block);
    schedule.items.push_back(item);
  }
}

// Cuts the references of a block into parts and the parts into `pieces` items, the first of which is `item`.
void split(RowBlock& block, WorkItem& item, int pieces, bool deterministic, Schedule& schedule) {
  const int references = block.reference_end - block.reference_begin;
  if (deterministic) {
    block.part_pages = kFixedPartPages;
    block.part_origin = block.reference_begin / kFixedPartPages * kFixedPartPages;
    block.parts =
        std::max(1, (block.reference_end - block.part_origin + kFixedPartPages - 1) / kFixedPartPages);
  } else {
    block.part_origin = block.reference_begin;
    block.part_pages = std::max(1, (references + pieces - 1) / pieces);
    block.parts = std::max(1, (references + block.part_pages - 1) / block.part_pages);
  }
  pieces = std::min(pieces, block.parts);
  const int64_t cost = item.cost;
  const int index = item.block;
  const auto piece = [&](int i) {
    const auto edge = [&](int n) { return static_cast<int>(int64_t{block.parts} * n / pieces); };
    return WorkItem{index, edge(i), edge(i + 1), cost / pieces};
  };
  item = piece(0);
  for (int i = 1; i < pieces; ++i) schedule.items.push_back(piece(i));
  if (pieces > 1) schedule.split_blocks.push_back(index);
}

}  // namespace

std::span<const ResolvedReference> RowBlock::part(std::span<const ResolvedReference> list_references,
                                                  int index) const {
  const int begin = std::max(reference_begin, part_origin + index * part_pages);
  const int last = std::min(reference_end, static_cast<int>(list_references.size()));
  const int end = std::min(last, part_origin + (index + 1) * part_pages);
  if (begin >= end) return {};
  return list_references.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

void ResolvedLists::begin(const BatchPlan& plan) {
  filled_.clear();
  for (const RowWrite& write : plan.writes) {
    if (write.page == nullptr) continue;
    int32_t& filled = filled_.try_emplace(write.page, write.page->count).first->second;
    filled = std::max(filled, write.slot + 1);
  }
  index_.resize(plan.sequences.size());
  for (size_t s = 0; s < index_.size(); ++s) index_[s].assign(plan.sequences[s].own_lists.size() + 1, -1);
  used_ = 0;
}

int ResolvedLists::list_of(const BatchPlan& plan, int sequence_index, int layer) {
  const SequencePlan& sequence = plan.sequences[static_cast<size_t>(sequence_index)];
  const int own = sequence.own_index.empty() ? -1 : sequence.own_index[static_cast<size_t>(layer)];
  int& list = index_[static_cast<size_t>(sequence_index)][static_cast<size_t>(std::max(own, -1) + 1)];
  if (list >= 0) return list;
  list = static_cast<int>(used_++);
  if (lists_.size() < used_) lists_.resize(used_);
  auto& resolved = lists_[static_cast<size_t>(list)];
  resolved.clear();
  for (const PageReference& reference : sequence.of_layer(layer)) {
    const auto found = filled_.find(reference.page);
    resolved.push_back(resolve(reference, found == filled_.end() ? reference.page->count : found->second));
  }
  return list;
}

void build_schedule(const BatchPlan& plan, const ResolvedLists& lists, const ScheduleOptions& options,
                    Schedule& schedule) {
  schedule.blocks.clear();
  schedule.items.clear();
  schedule.split_blocks.clear();
  schedule.state_rows = 0;
  const int group = schedule.heads / options.kv_heads;
  for (int s = 0; s < static_cast<int>(plan.sequences.size()); ++s) {
    add_blocks(plan, s, lists[schedule.lists[static_cast<size_t>(s)]], group, schedule);
  }
  int64_t total = 0;
  for (const WorkItem& item : schedule.items) total += item.cost * options.kv_heads;
  const int64_t fair = std::max<int64_t>(1, total / (int64_t{options.threads} * kItemsPerThread));
  const size_t whole = schedule.items.size();
  for (size_t i = 0; i < whole; ++i) {
    WorkItem item = schedule.items[i];
    RowBlock& block = schedule.blocks[static_cast<size_t>(item.block)];
    const int64_t most = (block.reference_end - block.reference_begin) / kSmallestPartPages;
    const int64_t wanted = options.threads > 1 ? (item.cost + fair - 1) / fair : 1;
    const int pieces = static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, most)));
    split(block, item, pieces, options.deterministic, schedule);
    schedule.items[i] = item;
  }
  for (const int index : schedule.split_blocks) {
    RowBlock& block = schedule.blocks[static_cast<size_t>(index)];
    block.state = schedule.state_rows;
    schedule.state_rows += int64_t{block.parts} * block.row_count * options.kv_heads;
  }
  std::stable_sort(schedule.items.begin(), schedule.items.end(),
                   [](const WorkItem& a, const WorkItem& b) { return a.cost > b.cost; });
}

}  // namespace rhapsode::kernels::cpu
