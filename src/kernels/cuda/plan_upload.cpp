#include "kernels/cuda/plan_upload.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/part_schedule.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kAlignment = 16;
constexpr size_t kShiftsAtOnce = 64;
constexpr int32_t kPagesOfATile = 8;  // take as long as beginning and ending one

uint64_t first_slots(int count) {
  return count >= kPageTokens ? ~0ull : (1ull << count) - 1;
}

// Tiles of at most `most` rows that hold all of `rows`, which ascend, and what lies between them.
template <typename Visit>
void for_each_tile(std::span<const int32_t> rows, int most, const Visit& visit) {
  while (!rows.empty()) {
    const auto end = std::ranges::lower_bound(rows, rows.front() + most);
    visit(rows.front(), *(end - 1) + 1 - rows.front());
    rows = {end, rows.end()};
  }
}

struct Tiles {
  std::vector<DeviceTile> narrow;
  std::vector<DeviceTile> wide;

  void add(const TileRule& rule, const DeviceTile& rows) {
    const bool few = rows.row_count <= rule.most_narrow_rows;
    const int step = few ? rule.narrow_rows : rule.wide_rows;
    const int end = rows.row_begin + rows.row_count;
    for (int row = rows.row_begin; row < end; row += step) {
      (few ? narrow : wide).push_back({rows.sequence, row, std::min(step, end - row), 0});
    }
  }
  // Every tile reads all of its sequence's pages, so rows that nobody asked for cost less than a tile more.
  void add_some(const TileRule& rule, int32_t sequence, std::span<const int32_t> rows) {
    int count = 0;
    for_each_tile(rows, rule.narrow_rows, [&](int32_t, int32_t) { ++count; });
    const bool few = count <= rule.most_narrow_rows / rule.narrow_rows;
    for_each_tile(rows, few ? rule.narrow_rows : rule.wide_rows, [&](int32_t begin, int32_t held) {
      (few ? narrow : wide).push_back({sequence, begin, held, 0});
    });
  }
  // The last rows of a sequence see most: the last wide tiles start first.
  std::vector<DeviceTile> joined() const {
    std::vector<DeviceTile> tiles = narrow;
    tiles.insert(tiles.end(), wide.rbegin(), wide.rend());
    return tiles;
  }
};

}  // namespace

template <typename T>
size_t PlanPacker::append(std::span<const T> values) {
  const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(begin + values.size_bytes());
  if (!values.empty()) std::memcpy(bytes_.data() + begin, values.data(), values.size_bytes());
  return begin;
}

void PlanPacker::append_writes(const BatchPlan& plan) {
  std::vector<DeviceWrite> writes;
  std::vector<int32_t> angles(plan.positions);
  writes.reserve(plan.writes.size());
  for (const RowWrite& write : plan.writes) {
    writes.push_back({write.page ? write.page->data : nullptr, write.slot, 0});
    angles.push_back(write.page ? write.page->positions[static_cast<size_t>(write.slot)] : 0);
  }
  for (const int32_t shift : shifts_) angles.push_back(-shift);
  offsets_.writes = append(std::span<const DeviceWrite>(writes));
  offsets_.angles = append(std::span<const int32_t>(angles));
}

void PlanPacker::append_sequences(const BatchPlan& plan) {
  std::vector<int32_t> row_sequence(plan.positions.size());
  std::vector<DeviceSequence> sequences;
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const SequencePlan& sequence = plan.sequences[s];
    sequences.push_back({sequence.row_begin, sequence.row_count});
    std::fill_n(row_sequence.begin() + sequence.row_begin, sequence.row_count, static_cast<int32_t>(s));
  }
  offsets_.row_sequence = append(std::span<const int32_t>(row_sequence));
  offsets_.sequences = append(std::span<const DeviceSequence>(sequences));
}

void PlanPacker::append_tiles(const BatchPlan& plan, std::span<const int32_t> output_rows) {
  Tiles all;
  Tiles outputs;
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const SequencePlan& sequence = plan.sequences[s];
    const auto index = static_cast<int32_t>(s);
    const int end = sequence.row_begin + sequence.row_count;
    all.add(rule_, {index, sequence.row_begin, sequence.row_count, 0});
    const auto first = std::ranges::lower_bound(output_rows, sequence.row_begin);
    const auto last = std::ranges::lower_bound(output_rows, end);
    outputs.add_some(rule_, index, {first, last});
  }
  sizes_.narrow_tiles = static_cast<int>(all.narrow.size());
  sizes_.wide_tiles = static_cast<int>(all.wide.size());
  sizes_.narrow_output_tiles = static_cast<int>(outputs.narrow.size());
  sizes_.wide_output_tiles = static_cast<int>(outputs.wide.size());
  const std::vector<DeviceTile> tiles = all.joined();
  offsets_.tiles = append(std::span<const DeviceTile>(tiles));
  offsets_.output_tiles = append(std::span<const DeviceTile>(outputs.joined()));
  append_parts(plan, std::span(tiles).subspan(all.narrow.size()));
}

// Where blocks have many items each, turns are as good; where most have none, all tiles are cut alike.
void PlanPacker::append_parts(const BatchPlan& plan, std::span<const DeviceTile> wide) {
  constexpr size_t kMostRounds = 6;
  const size_t items = wide.size() * static_cast<size_t>(rule_.wide_heads);
  const auto blocks = static_cast<size_t>(rule_.wide_blocks);
  if (2 * items <= blocks || items > kMostRounds * blocks || has_own_lists()) return;
  std::vector<int32_t> pages;
  pages.reserve(items);
  std::vector<int32_t> begins;
  int32_t of = -1;
  for (const DeviceTile& tile : wide) {
    if (tile.sequence != of) begins = page_begins(tile.sequence);
    of = tile.sequence;
    const auto rows = std::span(plan.positions)
                          .subspan(static_cast<size_t>(tile.row_begin), static_cast<size_t>(tile.row_count));
    const auto seen = std::ranges::upper_bound(begins, *std::ranges::max_element(rows)) - begins.begin();
    pages.insert(pages.end(), static_cast<size_t>(rule_.wide_heads), static_cast<int32_t>(seen));
  }
  const PartSchedule schedule = schedule_parts({pages, kPagesOfATile}, rule_.wide_blocks);
  sizes_.part_rounds = static_cast<int>(schedule.parts.size() / blocks);
  sizes_.part_slots = schedule.slots;
  sizes_.merges = static_cast<int>(schedule.merges.size());
  offsets_.parts = append(std::span<const DevicePart>(schedule.parts));
  offsets_.merges = append(std::span<const DeviceMerge>(schedule.merges));
}

// Where the pages of a sequence's shared list begin, in ascending order.
std::vector<int32_t> PlanPacker::page_begins(int32_t sequence) const {
  const DeviceList& list = lists_[static_cast<size_t>(sequence)];
  std::vector<int32_t> begins;
  begins.reserve(static_cast<size_t>(list.count));
  for (int32_t r = list.begin; r < list.begin + list.count; ++r) {
    const DeviceReference& reference = references_[static_cast<size_t>(r)];
    begins.push_back(reference.gathered < 0 ? reference.first : INT32_MIN);  // these are always looked at
  }
  if (!std::ranges::is_sorted(begins)) std::ranges::sort(begins);
  return begins;
}

// Long runs are cut into even pieces, and the longest come first.
void PlanPacker::append_runs(const BatchPlan& plan) {
  std::vector<DevicePageRun> runs;
  for (size_t s = 0; s < plan.sequences.size(); ++s) {
    const int32_t end = lists_[s].begin + lists_[s].count;
    for (int32_t begin = lists_[s].begin; begin < end;) {
      const int32_t frame = references_[static_cast<size_t>(begin)].shift_row;
      int32_t rest = 1;
      while (begin + rest < end && references_[static_cast<size_t>(begin + rest)].shift_row == frame) ++rest;
      for (int32_t pieces = (rest + kMostRunPages - 1) / kMostRunPages; pieces > 0; --pieces) {
        const int32_t count = (rest + pieces - 1) / pieces;
        runs.push_back({static_cast<int32_t>(s), begin, count, 0});
        begin += count;
        rest -= count;
      }
    }
    sizes_.most_rows = std::max(sizes_.most_rows, plan.sequences[s].row_count);
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const DevicePageRun& a, const DevicePageRun& b) { return a.count > b.count; });
  sizes_.runs = static_cast<int>(runs.size());
  offsets_.runs = append(std::span<const DevicePageRun>(runs));
}

int32_t PlanPacker::shift_row(int32_t shift) {
  // Neighbouring references nearly always share their shift.
  if (last_shift_row_ >= 0 && shift == last_shift_) return last_shift_row_;
  const auto [found, fresh] = shift_rows_.try_emplace(shift, static_cast<int32_t>(shifts_.size()));
  if (fresh) shifts_.push_back(shift);
  last_shift_ = shift;
  return last_shift_row_ = found->second;
}

DeviceList PlanPacker::add_list(std::span<const PageReference> references) {
  DeviceList list{static_cast<int32_t>(references_.size()), 0};
  for (size_t i = 0; i < references.size(); ++i) {
    const PageReference& reference = references[i];
    const Page& page = *reference.page;
    const auto found = fresh_.find(&page);
    const uint64_t filled = first_slots(page.count) | (found == fresh_.end() ? 0 : found->second);
    DeviceReference packed{page.data, reference.mask & filled, 0, -1, 0, reference.sink};
    if (packed.mask == 0) continue;  // its positions may be anything
    arrival_ = std::max(arrival_, page.arrival);
    packed.shift_row = shift_row(reference.shift);
    if (page.consecutive) {
      packed.first = reference.shift + page.positions[0];
    } else {
      packed.gathered = static_cast<int32_t>(gathered_.size() / kPageTokens);
      for (int slot = 0; slot < kPageTokens; ++slot) {
        // Slots that hold nothing may have any position: theirs is never looked at, but must not overflow.
        const bool used = packed.mask >> slot & 1;
        gathered_.push_back(used ? reference.shift + page.positions[static_cast<size_t>(slot)] : 0);
      }
    }
    references_.push_back(packed);
    origins_.push_back(static_cast<int32_t>(i));
  }
  list.count = static_cast<int32_t>(references_.size()) - list.begin;
  sizes_.most_references = std::max(sizes_.most_references, list.count);
  return list;
}

void PlanPacker::add_lists(const BatchPlan& plan) {
  const auto sequences = plan.sequences.size();
  lists_.clear();
  references_.clear();
  origins_.clear();
  gathered_.clear();
  shifts_.clear();
  shift_rows_.clear();
  last_shift_row_ = -1;
  arrival_ = 0;
  layer_lists_.assign(static_cast<size_t>(layers_), 0);
  std::vector<std::vector<DeviceList>> own(sequences);
  for (size_t s = 0; s < sequences; ++s) {
    lists_.push_back(add_list(plan.sequences[s].references));
    for (const auto& list : plan.sequences[s].own_lists) own[s].push_back(add_list(list));
  }
  const auto own_index = [&](size_t sequence, int layer) {
    const std::vector<int16_t>& index = plan.sequences[sequence].own_index;
    return index.empty() ? -1 : int{index[static_cast<size_t>(layer)]};
  };
  for (int layer = 0; layer < layers_; ++layer) {
    bool differs = false;
    for (size_t s = 0; s < sequences; ++s) differs |= own_index(s, layer) >= 0;
    if (!differs) continue;
    layer_lists_[static_cast<size_t>(layer)] = static_cast<int32_t>(lists_.size() / sequences);
    for (size_t s = 0; s < sequences; ++s) {
      const int index = own_index(s, layer);
      lists_.push_back(index < 0 ? lists_[s] : own[s][static_cast<size_t>(index)]);
    }
  }
}

void PlanPacker::pack(const BatchInput& batch) {
  const BatchPlan& plan = *batch.plan;
  bytes_.clear();
  offsets_ = {};
  sizes_ = {};
  sizes_.rows = plan.rows();
  sizes_.outputs = static_cast<int>(batch.output_rows.size());
  sizes_.sequences = static_cast<int>(plan.sequences.size());
  fresh_.clear();
  for (const RowWrite& write : plan.writes) {
    if (write.page) fresh_[write.page] |= 1ull << write.slot;
  }
  add_lists(plan);
  shifts_.resize((shifts_.size() + kShiftsAtOnce - 1) / kShiftsAtOnce * kShiftsAtOnce, 0);
  sizes_.shifts = static_cast<int>(shifts_.size());
  offsets_.tokens = append(batch.tokens);
  offsets_.output_rows = append(batch.output_rows);
  append_writes(plan);
  append_sequences(plan);
  append_tiles(plan, batch.output_rows);
  if (batch.mass) append_runs(plan);
  offsets_.lists = append(std::span<const DeviceList>(lists_));
  offsets_.gathered = append(std::span<const int32_t>(gathered_));
  offsets_.references = append(std::span<const DeviceReference>(references_));
  offsets_.bytes = bytes_.size();
}

}  // namespace rhapsode::kernels::cuda
