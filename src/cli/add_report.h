// What `add` is going to do and what it has done, in words.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal.h"
#include "rhapsode/memory_results.h"

namespace rhapsode::cli {

// "12 new sources, 1 changed, 3 unchanged: 45,120 tokens to encode, 550 MB to store, about 3:20 min"
std::string plan_text(const AddPlan& plan);

// Several lines: the counts, then skips by reason with a few examples (all of them when `verbose`), remarks,
// and each failure with its reason.
std::string report_text(const AddReport& report, bool verbose, const Terminal& terminal);

// "1 source", "3 sources"
std::string counted(uint64_t count, const char* thing);

}  // namespace rhapsode::cli
