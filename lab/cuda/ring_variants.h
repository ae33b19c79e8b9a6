// Ways to set up attend_ring's kernel, for the laboratory.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda::lab {

struct RingVariant {
  const char* name;
  int head_dim;
  int queries;  // of a tile
  void (*launch)(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream);
};

std::span<const RingVariant> ring_variants();  // of f16 pages

}  // namespace rhapsode::kernels::cuda::lab
