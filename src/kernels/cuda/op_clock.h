// What each kind of operation of a pass takes on the GPU, for the laboratory: an event before every
// operation.
//
// Operations of one name are summed up; marks cost about 2 us each on the host, so short passes get slower.
// Threads: one at a time. Errors: none; what could not be recorded is missing.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

namespace rhapsode::kernels::cuda {

class OpClock {
 public:
  struct Stage {
    std::string name;
    double ms = 0;     // of all passes since the last clear()
    double flops = 0;  // likewise; 0 where nobody counted
    int count = 0;
  };

  OpClock() = default;
  ~OpClock();
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;

  void begin();  // of a pass
  void mark(std::string name, double flops, cudaStream_t stream);
  void end(cudaStream_t stream);
  void read();  // after the stream has been waited for

  const std::vector<Stage>& stages() const { return stages_; }
  void clear() { stages_.clear(); }

 private:
  cudaEvent_t next_event();

  struct Mark {
    std::string name;
    double flops;
  };
  std::vector<cudaEvent_t> events_;
  std::vector<Mark> marks_;  // mark i lasts from event i to event i + 1
  size_t used_ = 0;
  std::vector<Stage> stages_;
};

}  // namespace rhapsode::kernels::cuda
