// The terms and tokens of a passage, as the catalog keeps them to be able to take them out of its indexes.
//
// Terms become one string of encoded terms with spaces between, which FTS5's `ascii` tokenizer splits back
// exactly: bytes other than a-z, 0-9 and those above 127 are written _hh. Errors: kCorrupt for stored bytes
// that do not unpack. Threads: any. Cost: O(bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::store {

// "c++" -> "c_2b_2b"; empty terms are dropped.
std::string encode_terms(std::span<const std::string> terms);
// An FTS5 expression that any of the terms satisfies, each once; empty when there are none.
std::string any_term_query(std::span<const std::string> terms);

Result<std::vector<std::byte>> pack_terms(std::string_view encoded);
Result<std::string> unpack_terms(std::span<const std::byte> packed);

// Sorted, without repetition.
Result<std::vector<std::byte>> pack_tokens(std::span<const int32_t> tokens);
Result<std::vector<int32_t>> unpack_tokens(std::span<const std::byte> packed);

}  // namespace rhapsode::store
