// How a batch is cut into work: row blocks, page partitions, and items that threads take off a counter.
//
// The rows of a sequence (query-major: the heads of one KV group of the first query, then of the second, ...)
// are cut into blocks of kBlockRows. The references a block may see are cut into parts; each part gives one
// softmax state and the states of a block are merged in the order of the parts. An item is a run of parts of
// one block: where one item covers all of them the block is finished on the spot, otherwise its states go to
// the workspace for combine(). Deterministic: parts are kFixedPartPages references, counted from the start of
// the list. Otherwise there is one part an item. Layers with equal heads, windows and page lists share a
// schedule. Memory is reused from batch to batch. Cost: O(rows / kBlockRows * references). Threads: built by
// one, then read by any number.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/context_plan.h"
#include "kernels/cpu/attend_kernels.h"

namespace rhapsode::kernels::cpu {

inline constexpr int kFixedPartPages = 8;

// What a sequence reads where a read budget binds: a choice of each KV head, of so many references at most.
struct ReadLimit {
  int selection = -1;  // of PageSelector; -1: all of its list
  int references = 0;
};

struct RowBlock {
  int sequence = 0;
  int list = 0;        // index into ResolvedLists
  int selection = -1;  // what is read instead of the list; its references may end before reference_end
  int row_begin = 0;   // within the sequence, in rows of one KV group (query x head)
  int row_count = 0;
  int32_t lowest = 0;  // positions of its rows
  int32_t highest = 0;
  int reference_begin = 0;  // what any of its rows may see lies in [begin, end)
  int reference_end = 0;
  int part_origin = 0;  // part p holds the references [origin + p * pages, origin + (p + 1) * pages)
  int part_pages = 1;
  int parts = 1;
  int64_t state = -1;  // first row of its states in the workspace; -1: finished in one item

  std::span<const ResolvedReference> part(std::span<const ResolvedReference> list_references,
                                          int index) const;
};

struct WorkItem {
  int block = 0;
  int part_begin = 0;
  int part_end = 0;
  int64_t cost = 0;
};

struct Schedule {
  int heads = 0;
  int32_t window = 0;
  std::vector<int> lists;         // by sequence
  std::vector<ReadLimit> limits;  // by sequence; empty: none has one
  std::vector<int> selections;    // those of `limits`
  std::vector<RowBlock> blocks;
  std::vector<WorkItem> items;    // longest first; each is done once for every KV head
  std::vector<int> split_blocks;  // blocks that combine() has to merge
  int64_t state_rows = 0;         // rows of states, all KV heads
};

// The references of a batch with masks limited to filled slots.
class ResolvedLists {
 public:
  void begin(const BatchPlan& plan);
  // The list that `sequence` reads in `layer`; resolved at the first call.
  int list_of(const BatchPlan& plan, int sequence, int layer);
  std::span<const ResolvedReference> operator[](int list) const { return lists_[static_cast<size_t>(list)]; }

 private:
  std::unordered_map<const Page*, int32_t> filled_;  // only pages that this batch writes to
  std::vector<std::vector<int>> index_;              // [sequence][own list + 1]; -1: not resolved yet
  std::vector<std::vector<ResolvedReference>> lists_;
  size_t used_ = 0;
};

struct ScheduleOptions {
  int kv_heads = 1;
  int threads = 1;
  bool deterministic = false;
};

// Fills `schedule` whose heads, window, lists and limits are set.
void build_schedule(const BatchPlan& plan, const ResolvedLists& lists, const ScheduleOptions& options,
                    Schedule& schedule);

}  // namespace rhapsode::kernels::cpu
