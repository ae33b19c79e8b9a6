// Checks the source of a chat template before the Jinja engine of libllama-common sees it.
//
// A template comes with a model file and is a program. That engine recurses once a level of an expression, of
// nested blocks and of macro calls, so a hostile template could overflow the stack. Refused are: sources over
// 256 KiB, tags with very long expressions, blocks nested too deeply, and macros that could call themselves,
// directly or through others. Not covered: a template may still loop for long. Threads: pure function.
// Errors: kUnsupported, with the line. Cost: one pass.
#pragma once

#include <string_view>

#include "rhapsode/result.h"

namespace rhapsode::text {

Status check_template(std::string_view source);

}  // namespace rhapsode::text
