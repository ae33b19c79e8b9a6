// Layers of pages that are on their way to the GPU, for the passes that read these pages meanwhile.
//
// A block holds its layers one behind the other, so blocks arrive together, some layers of each at a time: a
// *part*. What is loaded has a number, ascending, and arrives in that order, over one stream; an event a part
// says how far the latest has come, and whoever waits for that has waited for all before. Between the copies
// (device_page_memory.h) and the passes of one GPU (cuda_backend.h), which share it. Threads: next(),
// arrives() and done() under the memory's lock; on_the_way() and await() by any. Cost: a wait of a stream for
// an event a part and pass, only while something is on its way.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/page.h"

namespace rhapsode::kernels::cuda {

class PageArrivals {
 public:
  struct Part {
    int first_layer = 0;
    size_t offset = 0;  // in a block
    size_t bytes = 0;
  };

  explicit PageArrivals(const KvShape& shape);
  PageArrivals(const PageArrivals&) = delete;
  PageArrivals& operator=(const PageArrivals&) = delete;
  ~PageArrivals();

  // Makes the events, on the current GPU; before anything below.
  Status start();
  size_t block_bytes() const { return block_bytes_; }
  std::span<const Part> parts() const { return parts_; }

  // The number of what is loaded from now on.
  uint64_t next() { return ++begun_; }
  // The part is there when the stream has come this far.
  Status arrives(size_t part, cudaStream_t stream);
  void done(uint64_t number) { done_.store(number, std::memory_order_release); }

  bool on_the_way(uint64_t number) const { return number > done_.load(std::memory_order_acquire); }
  // What is enqueued on the stream from now on begins when the layer of everything loaded so far is there.
  Status await(int layer, cudaStream_t stream) const;

 private:
  size_t block_bytes_;
  std::vector<Part> parts_;
  std::vector<cudaEvent_t> events_;  // [parts]
  uint64_t begun_ = 0;
  std::atomic<uint64_t> done_{0};
};

}  // namespace rhapsode::kernels::cuda
