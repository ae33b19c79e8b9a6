// The memory that finding the largest logits of a pass takes (top_logits.h), and what of it comes to the
// host.
//
// In a pass: begin() first; reserve() before its first kernel, find() among them, copy() behind them; of()
// once the stream is done, and fetch() as long as the pass's rows lie where they are. Ownership: owns its
// buffers, borrows the rows. Threads: one at a time. Errors: kNoSpace; CUDA's; rows that the pass did not
// look at.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "base/result.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/top_logits.h"

namespace rhapsode::kernels::cuda {

class TopFinder {
 public:
  // Of each output row the first `vocabulary` features count; 0: the pass asks for rows instead.
  void begin(int32_t vocabulary);
  bool wanted() const { return vocabulary_ > 0; }
  int32_t vocabulary() const { return vocabulary_; }
  Status reserve(const RowShape& shape, const float* rows);
  void find(cudaStream_t stream) const;
  Status copy(cudaStream_t stream);
  Result<TopLogits> of(int row) const;
  // These rows as they are, in host memory once the stream is done; valid until the next call.
  Result<std::span<const float>> fetch(int first, int count, cudaStream_t stream);
  // What find()'s kernels hold.
  std::array<const void*, 2> rooms() const { return {workspace_.as<void>(), results_.as<void>()}; }

 private:
  int32_t vocabulary_ = 0;
  RowShape shape_;
  const float* rows_ = nullptr;
  DeviceBuffer workspace_;
  DeviceBuffer results_;
  PinnedBuffer result_;
  PinnedBuffer fetched_;
};

}  // namespace rhapsode::kernels::cuda
