// How far a token's fresh values are from its stored ones in one layer: CacheBlend's signal (arXiv
// 2405.16444). Pages as the host reads them (store/host_pages.h). Pure
// function; kv_heads x head_dim elements a call.
#pragma once

#include "kernels/page.h"

namespace rhapsode::recall {

// The squared distance of V, summed over KV heads.
double value_deviation(const kernels::KvShape& shape, int layer, const kernels::Page& stored, int stored_slot,
                       const kernels::Page& fresh, int fresh_slot);

}  // namespace rhapsode::recall
