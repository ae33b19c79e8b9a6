// Runs a call on a thread of its own with a stack of 256 MiB, for recursion whose depth a hostile file
// chooses within limits that are too wide for an ordinary stack.
//
// The caller waits. Errors: kNoSpace if no such thread can be made. Cost: about 30 microseconds; only the
// pages of the stack that are used take memory.
#pragma once

#include <functional>

#include "rhapsode/result.h"

namespace rhapsode::text {

// `call` must not throw.
Status on_deep_stack(const std::function<void()>& call);

}  // namespace rhapsode::text
