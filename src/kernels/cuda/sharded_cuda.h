// The sharded back end (kernels/sharded_backend.h) on NVIDIA GPUs of one host, one process.
//
// Shards on different GPUs exchange through NCCL, which is opened at run time; where a GPU is named twice,
// all exchange by copies between their memories, ordered by events (NCCL serves a GPU once). Errors:
// kUnsupported for GPUs that are not there, not alike, or without NCCL. No CUDA header is needed to include
// this one; a build without CUDA has the function and no device.
#pragma once

#include <memory>
#include <span>

#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

// `gpus`: of each shard, as CUDA numbers the visible ones.
Result<std::unique_ptr<Backend>> make_sharded_cuda_backend(BackendOptions options, std::span<const int> gpus);

}  // namespace rhapsode::kernels::cuda
