// Which block of a kernel works on what, so that all blocks end at about the same time. Pure host code.
//
// Blocks that take items in turns end at different times where there are only a few for each: 300 equal ones
// on 132 blocks take three rounds, the last of which leaves most of them idle. Items are packed instead:
// longest processing time first, and best fit decreasing into bins of growing size as in MULTIFIT (Coffman,
// Garey and Johnson, 1978). Where no packing is even, items are cut: blocks are filled with even shares of
// all pages, one after the other, and what of an item did not fit goes to the next block (Stream-K: Osama et
// al., 2023), whose partial results are merged. Cost: O(items log items), less than 0.1 ms for hundreds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/plan_layout.h"

namespace rhapsode::kernels::cuda {

struct PartCosts {
  std::span<const int32_t> pages;  // of each item, in the order of its list; not negative
  int32_t begin_pages = 0;         // so many pages take as long as beginning and ending a part
};

struct PartSchedule {
  std::vector<DevicePart> parts;  // [rounds][blocks]; those of a block in its order
  std::vector<DeviceMerge> merges;
  int slots = 0;
};

// Every page of every item once; `blocks` is at least 1.
PartSchedule schedule_parts(const PartCosts& costs, int blocks);

}  // namespace rhapsode::kernels::cuda
