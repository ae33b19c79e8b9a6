// How much two encodings of the same tokens differ: for verifying stored KV against a fresh one.
#pragma once

#include <span>

#include "base/result.h"
#include "kernels/page.h"
#include "store/page_pool.h"

namespace rhapsode::engine {

// Batches of another shape round differently, int8 pages by some 0.01; what is far beyond that is another
// model's, or damaged.
inline constexpr double kMostPageDifference = 0.1;

// The largest root mean square difference of a (layer, KV head)'s K or V over all tokens, relative to the
// root mean square of its values in `a`. NaN where either holds one. Cost: one pass over both, wherever they
// lie (store/host_pages.h).
Result<double> page_difference(const kernels::KvShape& shape, std::span<const store::PagePin> a,
                               std::span<const store::PagePin> b, int tokens);

}  // namespace rhapsode::engine
