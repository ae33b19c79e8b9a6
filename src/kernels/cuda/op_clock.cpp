#include "kernels/cuda/op_clock.h"

#include <algorithm>

namespace rhapsode::kernels::cuda {

OpClock::~OpClock() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void OpClock::begin() {
  used_ = 0;
  marks_.clear();
}

cudaEvent_t OpClock::next_event() {
  if (used_ == events_.size()) {
    cudaEvent_t event = nullptr;
    cudaEventCreate(&event);
    events_.push_back(event);
  }
  return events_[used_++];
}

void OpClock::mark(std::string name, double flops, cudaStream_t stream) {
  cudaEventRecord(next_event(), stream);
  marks_.push_back({std::move(name), flops});
}

void OpClock::end(cudaStream_t stream) {
  cudaEventRecord(next_event(), stream);
}

void OpClock::read() {
  for (size_t i = 0; i < marks_.size() && i + 1 < used_; ++i) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, events_[i], events_[i + 1]) != cudaSuccess) continue;
    const Mark& mark = marks_[i];
    auto stage =
        std::find_if(stages_.begin(), stages_.end(), [&](const Stage& s) { return s.name == mark.name; });
    if (stage == stages_.end()) stage = stages_.insert(stages_.end(), Stage{mark.name, 0, 0, 0});
    stage->ms += static_cast<double>(ms);
    stage->flops += mark.flops;
    ++stage->count;
  }
}

}  // namespace rhapsode::kernels::cuda
