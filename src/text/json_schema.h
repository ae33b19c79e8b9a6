// A grammar for JSON that fits a schema.
//
// The converter of libllama-common would relax what it cannot express and only print a warning; here that is
// an error. Threads: pure function. Errors: kInvalidArgument (not JSON, or a part of the schema that cannot
// be enforced), kTooLarge. Cost: a few milliseconds.
#pragma once

#include <string>
#include <string_view>

#include "rhapsode/result.h"

namespace rhapsode::text {

// `schema` is JSON text; "{}" gives the grammar of any JSON value. The result has the root rule "root".
Result<std::string> grammar_of_json_schema(std::string_view schema);

}  // namespace rhapsode::text
