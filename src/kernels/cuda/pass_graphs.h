// Captured passes: what a small pass launches, kept as a CUDA graph and launched at once the next time.
//
// A pass is launched one by one the first time, captured the second, and replayed from then on, as long as
// everything that its launches hold is the same: sizes, offsets into the uploaded plan, and the addresses of
// buffers. What changes from step to step (tokens, positions, references) is read from the plan. Least
// recently used ones are dropped. Threads: one at a time. Errors: those of CUDA; a failed capture leaves
// nothing behind.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <functional>
#include <list>

#include "base/result.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/plan_layout.h"

namespace rhapsode::kernels::cuda {

struct PassKey {
  int recipe = 0;
  PlanOffsets offsets;
  PlanSizes sizes;
  AttendSplits splits;
  AttendSplits output_splits;
  int32_t top_logits_of = 0;
  std::array<const void*, 8> buffers{};

  bool operator==(const PassKey&) const = default;
};

class PassGraphs {
 public:
  PassGraphs() = default;
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;
  ~PassGraphs();

  // Enqueues what `launch` enqueues on `stream`, by whichever way is known by now.
  Status run(const PassKey& key, cudaStream_t stream, const std::function<Status()>& launch);

 private:
  struct Entry {
    PassKey key;
    cudaGraphExec_t graph = nullptr;  // null: seen once
  };
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace rhapsode::kernels::cuda
