// What is taken from libllama-common: its Jinja engine and its conversion of JSON schemas to grammars.
//
// llama_common.cpp is the only file that includes that library's headers. They promise no stable interface,
// so the release is pinned and nothing of theirs shows here. Threads: pure functions. Errors: what the
// library throws, in its words. Cost: parsing a template a fraction of a millisecond, rendering less.
#pragma once

#include <string>
#include <string_view>

#include "rhapsode/result.h"

namespace rhapsode::text {

// A JSON schema that check_json_schema() has passed, as a grammar in GBNF.
Result<std::string> json_schema_to_gbnf(std::string_view schema);

}  // namespace rhapsode::text
