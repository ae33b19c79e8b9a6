// Page blocks in the memory of the GPU.
#pragma once

#include <memory>

#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

// Copies wait for their end, on a stream of their own: a pass has ended when run() returns, so they see what
// it wrote. Suggests four fifths of what is free: the rest is for activations.
std::unique_ptr<PageMemory> device_page_memory();

}  // namespace rhapsode::kernels::cuda
