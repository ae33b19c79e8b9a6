#include "kernels/cuda/rope_tables.h"

#include <algorithm>

namespace rhapsode::kernels::cuda {

namespace {
constexpr size_t kAlignment = 16;  // bytes; kernels read four angles at once
}

RopeTables::RopeTables(std::span<const AttendLayer> layers) {
  for (const AttendLayer& layer : layers) {
    const auto same = [&](const Kind& kind) { return kind.spec == layer.rope; };
    const auto found = std::find_if(kinds_.begin(), kinds_.end(), same);
    layer_kind_.push_back(static_cast<int>(found - kinds_.begin()));
    if (found == kinds_.end()) kinds_.push_back({layer.rope, {}, 0});
  }
}

Status RopeTables::start() {
  std::vector<double> all;
  for (const Kind& kind : kinds_) {
    const std::vector<double> frequencies = kind.spec.frequencies();
    all.insert(all.end(), frequencies.begin(), frequencies.end());
  }
  RH_TRY_STATUS(frequencies_.allocate(all.size() * sizeof(double), "rotary frequencies"));
  if (!all.empty()) RH_TRY_STATUS(frequencies_.upload(std::as_bytes(std::span(all))));
  size_t begin = 0;
  for (Kind& kind : kinds_) {
    kind.device.frequencies = frequencies_.at<const double>(begin * sizeof(double));
    kind.device.pairs = kind.spec.dimensions / 2;
    kind.device.adjacent = kind.spec.pairing == RopePairing::kAdjacent;
    kind.device.magnitude = static_cast<float>(kind.spec.magnitude());
    begin += static_cast<size_t>(kind.device.pairs);
  }
  return {};
}

Status RopeTables::fill(const int32_t* positions, int rows, int shifts, cudaStream_t stream) {
  rows_ = rows;
  const int count = 2 * rows + shifts;
  size_t bytes = 0;
  for (Kind& kind : kinds_) {
    kind.offset = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    bytes = kind.offset;
    bytes += static_cast<size_t>(count) * 2 * static_cast<size_t>(kind.device.pairs) * sizeof(float);
  }
  RH_TRY_STATUS(table_.reserve(bytes, "rotary tables"));
  for (const Kind& kind : kinds_) {
    make_angles(kind.device, positions, count, 2 * rows, table_.at<float>(kind.offset), stream);
  }
  return {};
}

RopeRows RopeTables::of_layer(int layer) const {
  const Kind& kind = kinds_[layer_kind_[layer]];
  const float* table = table_.at<const float>(kind.offset);
  const int64_t block = int64_t{rows_} * 2 * kind.device.pairs;
  return {kind.device.pairs, kind.device.adjacent, table, table + block, table + 2 * block};
}

}  // namespace rhapsode::kernels::cuda
