// Routing's look at time: passages whose own statements hold at the time asked for are preferred.
//
// A bounded addition to the score, never a filter: at most kMostTimeBonus either way, where fused scores are
// sums of two z-scores. Ownership and threads: a plain function. Errors: the catalog's. Cost: reading the
// texts of some twenty passages more than are asked for.
#pragma once

#include <vector>

#include "base/result.h"
#include "recall/router.h"
#include "store/catalog.h"
#include "text/time_expressions.h"

namespace rhapsode::recall {

inline constexpr double kMostTimeBonus = 0.5;

// `ranked`: best first; those that `count` wanted ones and some more are ranked anew by what their texts say.
Status prefer_time(const store::Catalog& catalog, const text::DatePeriod& at, int count,
                   std::vector<Ranked>& ranked);

}  // namespace rhapsode::recall
