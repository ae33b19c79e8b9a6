// Page blocks in the memory of a GPU.
#pragma once

#include <memory>

#include "kernels/cuda/page_arrivals.h"
#include "kernels/page_memory.h"

namespace rhapsode::kernels::cuda {

// Copies wait for their end, on a stream of their own: a pass has ended when run() returns, so they see what
// it wrote. Many blocks out of new_staging() go in one batch (copy_batch.h), small ones by a kernel
// (page_gather.h). Of every sixteen blocks copied in together one is summed on both sides of the bus;
// kInternal when the sums differ. With `arrivals` (the back end's own) begin_copies_in() brings whole blocks
// part by part, and passes wait for each; one such load at a time, the next waits for it. Suggests four
// fifths of what is free: the rest is for activations and the codes of passages.
std::unique_ptr<PageMemory> device_page_memory(int device = 0,
                                               std::shared_ptr<PageArrivals> arrivals = nullptr);

}  // namespace rhapsode::kernels::cuda
