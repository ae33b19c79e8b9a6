// Collectives over the memories of GPUs: by NCCL, or by copies between them.
//
// all_gather() only enqueues on its stream; NCCL's also when streams are far apart, copies wait on the host
// until every member has enqueued its part. Errors: kUnsupported when NCCL is not there. NCCL's group is lost
// when a member fails behind agree(): its kernels cannot be told to go on, so every later pass fails and says
// to start anew. Copies begin anew with the next agree().
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/collective.h"

namespace rhapsode::kernels::cuda {

// `gpus`: of each member. NCCL where they differ, else copies.
Result<std::vector<std::unique_ptr<Collective>>> device_collective(std::span<const int> gpus);

// By NCCL; no GPU twice. Cost: NCCL starts, about a second.
Result<std::vector<std::unique_ptr<Collective>>> nccl_collective(std::span<const int> gpus);
// By copies; any GPUs.
Result<std::vector<std::unique_ptr<Collective>>> copying_collective(std::span<const int> gpus);

}  // namespace rhapsode::kernels::cuda
