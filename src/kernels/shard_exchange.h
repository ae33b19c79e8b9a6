// The exchange of one layer on the host: every shard's attention in, the attention over all of them out.
//
// A shard's part is out [rows][heads][head_dim] and lse [rows][heads], float32, over its own pages; parts are
// merged in the order of the shards (merge_normalized), so every shard gets the same bytes. The CUDA version
// is cuda/shard_merge.h. Threads: one at a time. Errors: the collective's. Cost: a copy of every part; the
// memory of the largest exchange is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/collective.h"

namespace rhapsode::kernels {

struct ShardRows {
  int rows = 0;
  int heads = 0;
  int head_dim = 0;
  float* out = nullptr;
  int64_t out_stride = 0;  // floats from row to row
  std::span<float> lse;    // [rows][heads]
};

// Floats of one shard's part: out, lse, and what aligns the next one to 16 bytes.
constexpr size_t shard_part_floats(int rows, int heads, int head_dim) {
  const size_t floats =
      static_cast<size_t>(rows) * static_cast<size_t>(heads) * static_cast<size_t>(head_dim + 1);
  return (floats + 3) / 4 * 4;
}

class ShardExchange {
 public:
  // Replaces out and lse of this shard by those over all shards.
  Status run(Collective& collective, const ShardRows& part);

 private:
  std::vector<float> all_;  // [members] parts
};

}  // namespace rhapsode::kernels
