// The laboratory's kernel 4; see attend_wide_wgmma.cu.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend_wide.h"

namespace rhapsode::kernels::cuda::lab {

void attend_wide_wgmma(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda::lab
