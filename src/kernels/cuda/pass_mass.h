// Where attention went in one pass: the sums on the device, and what the host gets of them.
//
// Sums are kept for every slot of the pages that a pass reads; attention.h adds to them layer by layer.
// Threads: one at a time, that of the passes. Errors: kNoSpace in begin(); those of CUDA.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/plan_upload.h"

namespace rhapsode::kernels::cuda {

class PassMass {
 public:
  explicit PassMass(const KvShape& shape) : shape_(shape) {}

  // Before the first layer of a pass, whose plan lies at `plan`; not wanted: nothing is kept of it.
  void skip() { kept_ = false; }
  Status begin(const PlanPacker& packer, const DeviceBuffer& plan, int query_parts, cudaStream_t stream);
  bool kept() const { return kept_; }
  const MassTarget& target() const { return target_; }
  // Behind the last layer: enqueues the last sums and their way to the host.
  Status finish(cudaStream_t stream);
  // Once the stream has come so far: by sequence and reference of the plan.
  void take(const BatchPlan& plan, const PlanPacker& packer);
  // [references][64] of a sequence; kInternal when the last pass kept none.
  Result<std::span<const double>> of(int sequence) const;

 private:
  KvShape shape_;
  MassTarget target_;
  DeviceBuffer sums_;
  PinnedBuffer packed_;                         // [packed references][64]
  std::vector<std::vector<double>> per_token_;  // [sequences]
  bool kept_ = false;
};

}  // namespace rhapsode::kernels::cuda
