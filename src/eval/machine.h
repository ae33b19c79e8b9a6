// The machine that numbers were measured on, as far as it matters for them. Threads: any. Errors: none; what
// cannot be found out is empty.
#pragma once

#include <string>

#include "eval/record.h"

namespace rhapsode::eval {

// {"cpu": model name, "cores": usable ones, "memory_bytes"}
Json describe_machine();

}  // namespace rhapsode::eval
