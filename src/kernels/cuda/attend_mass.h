// Where attention went: probabilities of each slot, summed over rows and heads. A second pass over the keys,
// with the log-sum-exp that attending left behind.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend.h"

namespace rhapsode::kernels::cuda {

// The sequences' shared lists, and what is added up for them.
struct MassTarget {
  const DeviceSequence* sequences = nullptr;
  int sequence_count = 0;
  const DeviceList* shared = nullptr;  // [sequences]
  int most_references = 0;             // of one of them
  double* mass = nullptr;              // [references][64], added to
};

// attend.lse is that of the layer. A sequence that reads a list of its own in this layer adds nothing.
void attend_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
