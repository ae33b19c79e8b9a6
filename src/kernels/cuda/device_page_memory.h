// Page blocks in the memory of a GPU.
#pragma once

#include <memory>

#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

// Copies wait for their end, on a stream of their own: a pass has ended when run() returns, so they see what
// it wrote. Many small blocks out of new_staging() are gathered by a kernel (page_gather.h). Of every sixteen
// blocks copied in together one is summed on both sides of the bus; kInternal when the sums differ. Suggests
// four fifths of what is free: the rest is for activations and the codes of passages.
std::unique_ptr<PageMemory> device_page_memory(int device = 0);

}  // namespace rhapsode::kernels::cuda
