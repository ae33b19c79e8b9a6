// CodeSearch on one NVIDIA GPU. Codes lie there in segments that never move: what is added fills the last
// one, then begins a new one. No CUDA header is needed to include this one; a build without CUDA has the
// function and no device.
#pragma once

#include <memory>

#include "kernels/code_search.h"

namespace rhapsode::kernels::cuda {

// kUnsupported where why_no_device() is not empty, kInvalidArgument for dimensions that are not 1 to 16384.
Result<std::unique_ptr<CodeSearch>> make_code_search(int dimensions, int device = 0);

}  // namespace rhapsode::kernels::cuda
