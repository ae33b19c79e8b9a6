#include "index/candidate_choice.h"

#include <algorithm>
#include <array>
#include <bit>

namespace rhapsode::index {
namespace {

constexpr int kBucketBits = 12;

template <class Visit>
void for_each_open(const SegmentSums& segment, const Visit& visit) {
  const std::span<const uint64_t> words = segment.open->words();
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t word = words[w]; word != 0; word &= word - 1) {
      visit(w * 64 + static_cast<size_t>(std::countr_zero(word)));
    }
  }
}

}  // namespace

std::vector<int64_t> choose_candidates(std::span<const SegmentSums> segments, size_t count) {
  uint32_t largest = 0;
  for (const SegmentSums& segment : segments) {
    for (const uint32_t sum : segment.sums) largest = std::max(largest, sum);
  }
  const int shift = std::max(0, static_cast<int>(std::bit_width(largest)) - kBucketBits);
  std::array<size_t, size_t{1} << kBucketBits> counts{};
  for (const SegmentSums& segment : segments) {
    for_each_open(segment, [&](size_t p) { ++counts[segment.sums[p] >> shift]; });
  }
  size_t above = 0;
  size_t bucket = counts.size() - 1;
  for (; bucket > 0 && above + counts[bucket] < count; --bucket) above += counts[bucket];
  size_t equal = count - std::min(above, count);  // how many of the last bucket
  std::vector<int64_t> chosen;
  for (const SegmentSums& segment : segments) {
    for_each_open(segment, [&](size_t p) {
      const size_t at = segment.sums[p] >> shift;
      if (at < bucket || (at == bucket && equal == 0)) return;
      if (at == bucket) --equal;
      chosen.push_back(segment.ids[p]);
    });
  }
  return chosen;
}

}  // namespace rhapsode::index
