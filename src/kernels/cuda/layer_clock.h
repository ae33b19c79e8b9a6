// When groups of layers ran in the last pass, for tracing: events between layers, placed on the steady clock
// by the moment the last one was seen to have happened.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

class LayerClock {
 public:
  explicit LayerClock(int layers);  // 0: never measures anything
  ~LayerClock();
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;

  void begin();
  void at_layer(int layer, cudaStream_t stream);
  void end(cudaStream_t stream);
  void read();  // after the stream has been waited for
  std::vector<LayerSpan> spans() const { return spans_; }

 private:
  int layers_;
  std::vector<cudaEvent_t> events_;  // one before each group of layers, one at the end
  std::vector<bool> recorded_;
  std::vector<LayerSpan> spans_;
};

}  // namespace rhapsode::kernels::cuda
