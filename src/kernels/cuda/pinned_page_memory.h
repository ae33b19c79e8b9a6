// Pinned host memory as page memory: the tier beside a GPU, from which copies run at the speed of the bus.
//
// reserve() takes addresses only; prepare() pins them, a slab at a time, so that a large cap costs nothing
// until it is used. Parts are all of one size, at multiples of it: no copy of a part crosses slabs. Threads:
// as in page_memory.h; prepare() by any. Errors: kNoSpace when a slab cannot be pinned: its pages are as good
// as not there. Cost: pinning a slab takes some tens of milliseconds, once.
#pragma once

#include <memory>

#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

std::unique_ptr<PageMemory> pinned_page_memory();

}  // namespace rhapsode::kernels::cuda
