// How far a token's fresh values are from its stored ones in one layer: CacheBlend's signal (arXiv
// 2405.16444). Pure function; kv_heads x head_dim elements a call.
#pragma once

#include "kernels/page.h"
#include "store/page_pool.h"

namespace rhapsode::recall {

// The squared distance of V, summed over KV heads.
double value_deviation(const kernels::KvShape& shape, int layer, const store::PagePin& stored,
                       int stored_slot, const store::PagePin& fresh, int fresh_slot);

}  // namespace rhapsode::recall
