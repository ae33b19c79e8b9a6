// Blocks of reStructuredText that are cut at their lines only: literal blocks, code directives, tables.
//
// Ownership: refers to the text. Threads: any. Cost: O(block).
#pragma once

#include <optional>
#include <string_view>

#include "text/document.h"
#include "text/text_scan.h"

namespace rhapsode::text {

// The block that `line` opens ("::" at its end, "=====  ====="), if it does; it ends behind its last line.
std::optional<RowBlock> rst_block_at(std::string_view text, const Line& line);

}  // namespace rhapsode::text
