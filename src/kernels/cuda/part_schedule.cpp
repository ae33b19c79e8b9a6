#include "kernels/cuda/part_schedule.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace rhapsode::kernels::cuda {

namespace {

// Larger bins than an even share, one after the other until all items fit.
constexpr double kBins[] = {1.005, 1.01, 1.02, 1.03};
// An uneven end that costs less than merging.
constexpr double kEvenEnough = 1.04;
constexpr int64_t kLeastPages = 8;  // of a part that is cut off

struct Assigned {
  std::vector<std::vector<DevicePart>> blocks;
  std::vector<int64_t> loads;
  int slots = 0;

  explicit Assigned(int count) : blocks(static_cast<size_t>(count)), loads(static_cast<size_t>(count)) {}
  void add(size_t block, const DevicePart& part, int64_t cost) {
    blocks[block].push_back(part);
    loads[block] += cost;
  }
  int64_t longest() const { return std::ranges::max(loads); }
};

class Planner {
 public:
  Planner(const PartCosts& costs, int blocks) : costs_(costs), blocks_(blocks), order_(costs.pages.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, [&](int32_t a, int32_t b) { return cost(a) > cost(b); });
    for (const int32_t item : order_) sum_ += cost(item);
  }

  double even() const { return static_cast<double>(sum_) / blocks_; }

  // Each item to the block that has least.
  Assigned longest_first() const {
    Assigned assigned(blocks_);
    std::set<std::pair<int64_t, size_t>> loads;
    for (size_t block = 0; block < assigned.blocks.size(); ++block) loads.insert({0, block});
    for (const int32_t item : order_) {
      const auto [load, block] = *loads.begin();
      loads.erase(loads.begin());
      assigned.add(block, whole(item), cost(item));
      loads.insert({load + cost(item), block});
    }
    return assigned;
  }

  // Each item to the fullest block that has room for it.
  std::optional<Assigned> best_fit(int64_t room) const {
    Assigned assigned(blocks_);
    std::set<std::pair<int64_t, size_t>> rooms;
    for (size_t block = 0; block < assigned.blocks.size(); ++block) rooms.insert({room, block});
    for (const int32_t item : order_) {
      const auto found = rooms.lower_bound({cost(item), 0});
      if (found == rooms.end()) return std::nullopt;
      const auto [left, block] = *found;
      rooms.erase(found);
      assigned.add(block, whole(item), cost(item));
      rooms.insert({left - cost(item), block});
    }
    return assigned;
  }

  // Block by block, items cut where a block is full.
  Assigned cut() const {
    Assigned assigned(blocks_);
    // Every block but the first may begin with the rest of an item, which it has to begin anew.
    const int64_t share = (sum_ + costs_.begin_pages * (blocks_ - 1) + blocks_ - 1) / blocks_;
    size_t block = 0;
    for (const int32_t item : order_) {
      const int64_t pages = costs_.pages[static_cast<size_t>(item)];
      int64_t begin = 0;
      do {
        const bool last = block + 1 == assigned.blocks.size();
        int64_t room = share - assigned.loads[block] - costs_.begin_pages;
        if (room < std::min(kLeastPages, pages - begin) && !last) {
          ++block;
          continue;
        }
        if (last || pages - begin - room < kLeastPages) room = pages - begin;
        const bool ends = room >= pages - begin;
        const bool only = ends && begin == 0;
        const int64_t end = ends ? pages : begin + room;
        assigned.add(block,
                     {item, static_cast<int32_t>(begin), ends ? INT32_MAX : static_cast<int32_t>(end),
                      only ? -1 : assigned.slots++},
                     end - begin + costs_.begin_pages);
        if (ends) break;
        begin = end;
        ++block;
      } while (true);
    }
    return assigned;
  }

 private:
  int64_t cost(int32_t item) const { return costs_.pages[static_cast<size_t>(item)] + costs_.begin_pages; }
  static DevicePart whole(int32_t item) { return {item, 0, INT32_MAX, -1}; }

  const PartCosts& costs_;
  int blocks_;
  std::vector<int32_t> order_;
  int64_t sum_ = 0;
};

// Slots of an item lie side by side: it is cut in one go.
std::vector<DeviceMerge> merges_of(const Assigned& assigned) {
  std::vector<DeviceMerge> merges;
  for (const std::vector<DevicePart>& parts : assigned.blocks) {
    for (const DevicePart& part : parts) {
      if (part.slot < 0) continue;
      if (part.begin == 0) merges.push_back({part.item, part.slot, 0, 0});
      ++merges.back().count;
    }
  }
  return merges;
}

}  // namespace

PartSchedule schedule_parts(const PartCosts& costs, int blocks) {
  const Planner planner(costs, blocks);
  Assigned best = planner.longest_first();
  for (const double bin : kBins) {
    const auto room = static_cast<int64_t>(planner.even() * bin);
    if (room >= best.longest()) break;
    if (auto packed = planner.best_fit(room)) {
      best = std::move(*packed);
      break;
    }
  }
  if (static_cast<double>(best.longest()) > kEvenEnough * planner.even()) {
    if (Assigned cut = planner.cut(); cut.longest() < best.longest()) best = std::move(cut);
  }
  size_t rounds = 0;
  for (const std::vector<DevicePart>& parts : best.blocks) rounds = std::max(rounds, parts.size());
  PartSchedule schedule;
  schedule.slots = best.slots;
  schedule.merges = merges_of(best);
  schedule.parts.assign(rounds * best.blocks.size(), {-1, 0, 0, -1});
  for (size_t block = 0; block < best.blocks.size(); ++block) {
    for (size_t round = 0; round < best.blocks[block].size(); ++round) {
      schedule.parts[round * best.blocks.size() + block] = best.blocks[block][round];
    }
  }
  return schedule;
}

}  // namespace rhapsode::kernels::cuda
