// The prompt of `generate`, from wherever the user put it, as a Request.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command.h"

namespace rhapsode::cli {

// The argument, --file or standard input (when it is not a terminal); rendered by the chat template unless
// --raw. Grammars and schemas given as files are read. Misuse is kInvalidArgument.
Result<Request> build_request(const Invocation& invocation);

// `value` itself when it is a text of its kind (contains `mark`), else the contents of the file it names.
Result<std::string> text_or_file(const std::string& option, const std::string& value, std::string_view mark);

}  // namespace rhapsode::cli
