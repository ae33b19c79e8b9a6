// Pinned host memory as page memory: the tier beside a GPU, from which copies run at the speed of the bus.
//
// reserve() takes addresses only. From prepare_ahead() on, a few threads pin slabs of them, from the first
// on: as many bytes ahead of what prepare() was asked for as kPinnedAheadBytes, and never more than the
// region. What comes sooner than they prepare() pins itself. Parts are all of one size, at multiples of it:
// no copy of a part crosses slabs. Ownership: as of page_memory.h; the end waits for slabs under way.
// Threads: prepare() by any. Errors: kNoSpace when a slab cannot be pinned: its pages are as good as not
// there, and nothing more is pinned ahead. Cost: pinned memory is taken from everybody else; docs/results.md
// says how long it takes.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

// Enough for the KV of a long context, and soon undone when a short-lived process ends.
inline constexpr uint64_t kPinnedAheadBytes = uint64_t{2} << 30;

// Pinned for every GPU, through the context of this one.
std::unique_ptr<PageMemory> pinned_page_memory(int device);

}  // namespace rhapsode::kernels::cuda
