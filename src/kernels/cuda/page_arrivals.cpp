#include "kernels/cuda/page_arrivals.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

namespace {

// A pass waits for the first part at least, and computes what the last one is read by when all is there; each
// piece of a block costs a copy engine a microsecond.
constexpr int kMostParts = 8;
constexpr size_t kLeastPieceBytes = 128 << 10;

}  // namespace

PageArrivals::PageArrivals(const KvShape& shape) : block_bytes_(shape.block_bytes()) {
  if (shape.layers == 0) return;
  const auto of_pieces = static_cast<int>((kLeastPieceBytes + shape.page_bytes() - 1) / shape.page_bytes());
  const int at_once = std::max((shape.layers + kMostParts - 1) / kMostParts, of_pieces);
  for (int layer = 0; layer < shape.layers; layer += at_once) {
    const int layers = std::min(at_once, shape.layers - layer);
    parts_.push_back({layer, shape.page_bytes() * static_cast<size_t>(layer),
                      shape.page_bytes() * static_cast<size_t>(layers)});
  }
}

PageArrivals::~PageArrivals() {
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
}

Status PageArrivals::start() {
  while (events_.size() < parts_.size()) {
    cudaEvent_t event = nullptr;
    RH_TRY_STATUS(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    events_.push_back(event);
  }
  return {};
}

Status PageArrivals::arrives(size_t part, cudaStream_t stream) {
  return check(cudaEventRecord(events_[part], stream), "copying pages");
}

Status PageArrivals::await(int layer, cudaStream_t stream) const {
  for (size_t i = 0; i < events_.size(); ++i) {
    if (parts_[i].first_layer != layer) continue;
    return check(cudaStreamWaitEvent(stream, events_[i]), "waiting for pages");
  }
  return {};
}

}  // namespace rhapsode::kernels::cuda
