// Makes a chat template safe for the Jinja engine of libllama-common.
//
// A template comes with a model file and is a program. That engine recurses once a level of an expression, of
// nested blocks and of macro calls, so a hostile template could overflow the stack. Refused are sources over
// 256 KiB, tags with very long expressions, and blocks or macro calls nested too deeply. Macros that may call
// themselves are common (they print the schemas of tools), so they get a counter of calls, kCallCounter,
// which ends a rendering at 100 calls. Not covered: a template may still loop for long. Threads: pure
// function. Errors: kUnsupported, with the line. Cost: one pass.
#pragma once

#include <string>
#include <string_view>

#include "rhapsode/result.h"

namespace rhapsode::text {

// The variable that a template with `counts_calls` expects: an object whose `count` is 0.
inline constexpr char kCallCounter[] = "rhapsode_macro_calls";

struct GuardedTemplate {
  std::string source;
  bool counts_calls = false;
  bool needs_deep_stack = false;  // it has macros; without any, an ordinary stack of 8 MiB suffices
};

Result<GuardedTemplate> guard_template(std::string_view source);

}  // namespace rhapsode::text
