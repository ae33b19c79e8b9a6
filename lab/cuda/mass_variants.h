// Ways to sum where attention went, for the laboratory.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/attend_mass.h"

namespace rhapsode::kernels::cuda::lab {

struct MassVariant {
  const char* name;
  KvType type;
  int head_dim;
  void (*launch)(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream);
};

// One query at a time, in float32: what the others are checked against.
void exact_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream);
std::span<const MassVariant> mass_variants();

}  // namespace rhapsode::kernels::cuda::lab
