// Checks a grammar in GBNF, llama.cpp's notation, before libllama parses it.
//
// libllama's parser prints to stderr instead of returning what is wrong, recurses without a limit and runs
// out of memory on "x{5,2}". This check accepts what that parser accepts, within limits on size and depth,
// and says where a grammar is wrong. Left recursion is found later, by libllama itself. Threads: pure
// function. Errors: kInvalidArgument with line and column, kTooLarge. Cost: one pass.
#pragma once

#include <functional>
#include <string_view>

#include "rhapsode/result.h"

namespace rhapsode::text {

// `is_token` says whether a <name> in the grammar is exactly one token of the vocabulary.
Status check_gbnf(std::string_view grammar, const std::function<bool(std::string_view)>& is_token);

}  // namespace rhapsode::text
