// The prompt of `generate`, from wherever the user put it, as a Request.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/command.h"

namespace rhapsode::cli {

// The argument, --file or standard input (when it is not a terminal); rendered by the chat template unless
// --raw. Grammars and schemas given as files are read. Misuse is kInvalidArgument.
Result<Request> build_request(const Invocation& invocation);

// Replaces a grammar or schema that names a file by the file's contents; both at once are misuse.
Status read_constraints(SamplingOptions& sampling);

// The whole of standard input, without the line feed that files and pipes end in; `what` is for errors.
Result<std::string> read_standard_input(const std::string& what);

// `value` itself when it is a text of its kind (contains `mark`), else the contents of the file it names.
Result<std::string> text_or_file(const std::string& option, const std::string& value, std::string_view mark);

}  // namespace rhapsode::cli
