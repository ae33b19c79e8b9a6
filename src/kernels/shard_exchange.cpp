#include "kernels/shard_exchange.h"

#include <algorithm>

#include "kernels/attention_state.h"

namespace rhapsode::kernels {

Status ShardExchange::run(Collective& collective, const ShardRows& part) {
  const auto rows = static_cast<size_t>(part.rows);
  const auto heads = static_cast<size_t>(part.heads);
  const auto dim = static_cast<size_t>(part.head_dim);
  const size_t floats = shard_part_floats(part.rows, part.heads, part.head_dim);
  const size_t lse_at = rows * heads * dim;
  all_.resize(floats * static_cast<size_t>(collective.members()));
  float* mine = all_.data() + floats * static_cast<size_t>(collective.member());
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(part.out + static_cast<int64_t>(row) * part.out_stride, heads * dim,
                mine + row * heads * dim);
  }
  std::copy(part.lse.begin(), part.lse.end(), mine + lse_at);
  RH_TRY_STATUS(
      collective.all_gather(reinterpret_cast<std::byte*>(all_.data()), floats * sizeof(float), nullptr));
  for (size_t row = 0; row < rows; ++row) {
    for (size_t head = 0; head < heads; ++head) {
      const size_t at = row * heads + head;
      const std::span<float> out(part.out + static_cast<int64_t>(row) * part.out_stride + head * dim, dim);
      std::copy_n(all_.data() + at * dim, dim, out.begin());
      float lse = all_[lse_at + at];
      for (const float* next = all_.data() + floats; next != all_.data() + all_.size(); next += floats) {
        lse = merge_normalized(lse, out, next[lse_at + at], std::span<const float>(next + at * dim, dim));
      }
      part.lse[at] = lse;
    }
  }
  return {};
}

}  // namespace rhapsode::kernels
