// The weights of a model on the GPU, dequantised once.
//
// Rows are converted on all threads into pinned memory and copied from there. The same bytes of a file added
// twice (a tied output matrix) lie on the GPU once. Threads: one at a time. Errors: kUnsupported for types
// that ggml cannot dequantise; kNoSpace.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/program.h"
#include "kernels/graph.h"

namespace rhapsode::kernels::cuda {

class WeightStore {
 public:
  explicit WeightStore(int threads) : threads_(threads) {}

  Result<Weight> add(const WeightSource& source, WeightUse use);

  std::span<const WeightShape> shapes() const { return shapes_; }
  DeviceInput at(int weight) const {
    return {places_[weight].buffer->at<void>(places_[weight].offset), shapes_[weight].element};
  }
  const float* vector(int weight) const { return static_cast<const float*>(at(weight).data); }
  // One weight of matrices one below the other (or of vectors one behind the other); an absent part (-1) is
  // zeros, as long as `rows` says. The parts themselves move there: nothing lies on the GPU twice. The same
  // parts give the same weight.
  Result<int> join(std::span<const int> parts, std::span<const int64_t> rows);
  uint64_t bytes() const { return bytes_; }
  // Whether a matrix was rounded to fewer bits than its file's, or widened from a quantised type.
  bool rounds_to_bf16() const { return rounds_to_bf16_; }
  // The pinned memory of loading is of no further use.
  void finish() { staging_.reset(); }

 private:
  Status upload(const WeightSource& source, Element element, DeviceBuffer& buffer);

  int threads_;
  struct Place {
    std::shared_ptr<DeviceBuffer> buffer;
    size_t offset = 0;  // bytes
  };
  std::vector<Place> places_;
  std::map<std::vector<int>, int> joins_;
  std::vector<WeightShape> shapes_;
  std::map<std::tuple<const std::byte*, int64_t, int64_t, Element>, int> by_source_;
  std::unique_ptr<PinnedBuffer> staging_;
  uint64_t bytes_ = 0;
  bool rounds_to_bf16_ = false;
};

}  // namespace rhapsode::kernels::cuda
