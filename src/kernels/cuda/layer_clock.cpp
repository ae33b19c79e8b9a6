#include "kernels/cuda/layer_clock.h"

#include <algorithm>

#include "base/clock.h"

namespace rhapsode::kernels::cuda {

namespace {
constexpr int kLayerGroup = 4;  // layers a trace span
}

LayerClock::LayerClock(int layers) : layers_(layers) {
  if (layers == 0) return;
  events_.resize(static_cast<size_t>((layers + kLayerGroup - 1) / kLayerGroup + 1));
  for (cudaEvent_t& event : events_) cudaEventCreate(&event);
}

LayerClock::~LayerClock() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void LayerClock::begin() {
  recorded_.assign(events_.size(), false);
  spans_.clear();
}

void LayerClock::at_layer(int layer, cudaStream_t stream) {
  if (events_.empty() || layer % kLayerGroup != 0) return;
  const auto group = static_cast<size_t>(layer / kLayerGroup);
  recorded_[group] = cudaEventRecord(events_[group], stream) == cudaSuccess;
}

void LayerClock::end(cudaStream_t stream) {
  if (events_.empty()) return;
  recorded_.back() = cudaEventRecord(events_.back(), stream) == cudaSuccess;
}

void LayerClock::read() {
  if (events_.empty() || !recorded_.back()) return;
  const int64_t now = now_ns();
  const auto before_end = [&](size_t event) {
    float ms = 0;
    cudaEventElapsedTime(&ms, events_[event], events_.back());
    return now - static_cast<int64_t>(static_cast<double>(ms) * 1e6);
  };
  const size_t groups = events_.size() - 1;
  for (size_t group = 0; group < groups; ++group) {
    if (!recorded_[group]) break;  // a pass may stop below the last layer
    const bool more = group + 1 < groups && recorded_[group + 1];
    const int first = static_cast<int>(group) * kLayerGroup;
    spans_.push_back({first, std::min(first + kLayerGroup, layers_) - 1, before_end(group),
                      more ? before_end(group + 1) : now});
  }
}

}  // namespace rhapsode::kernels::cuda
