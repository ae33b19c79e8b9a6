// From impact sums to candidates: the passages of several segments with the largest sums.
//
// Sums are sorted into coarse buckets, so that the choice costs two passes over the sums whatever their
// number. Threads: choose() from one; the sums are only read. The result depends on the sums alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "index/impact_lists.h"

namespace rhapsode::index {

struct SegmentSums {
  std::span<const uint32_t> sums;  // [passages]
  const PassageBits* open = nullptr;
  std::span<const int64_t> ids;
};

// The ids of `count` open passages with the largest sums (up to the width of a bucket, 1/4096 of the largest;
// ties in the order of segments and passages), or of all open ones if there are no more. In that order.
std::vector<int64_t> choose_candidates(std::span<const SegmentSums> segments, size_t count);

}  // namespace rhapsode::index
