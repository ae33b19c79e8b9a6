// The merge of kernels/shard_exchange.h on the GPU: every shard's attention over its own pages becomes the
// attention over all of them, by log-sum-exp in the order of the shards. Enqueues on `stream`; allocates
// nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_types.h"

namespace rhapsode::kernels::cuda {

struct ShardMerge {
  int shards = 0;
  int rows = 0;
  int heads = 0;
  int head_dim = 0;
  const float* parts = nullptr;  // [shards]: out [rows][heads][head_dim], then lse [rows][heads]
  int64_t part_floats = 0;       // from part to part: shard_part_floats()
  DeviceValue out;               // [rows][heads][head_dim]
  float* lse = nullptr;          // [rows][heads]
};

void merge_shards(const ShardMerge& merge, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
