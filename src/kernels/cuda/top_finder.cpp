#include "kernels/cuda/top_finder.h"

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

void TopFinder::begin(int32_t vocabulary) {
  vocabulary_ = vocabulary;
  shape_ = {};
  rows_ = nullptr;
}

Status TopFinder::reserve(const RowShape& shape, const float* rows) {
  if (vocabulary_ > shape.features) {
    return make_error(ErrorKind::kInternal, "the largest of {} logits were asked of rows of {}", vocabulary_,
                      shape.features);
  }
  const size_t bytes = static_cast<size_t>(shape.rows) * sizeof(TopRow);
  RH_TRY_STATUS(workspace_.reserve(top_logits_workspace_bytes(shape.rows), "finding the largest logits"));
  RH_TRY_STATUS(results_.reserve(bytes, "the largest logits"));
  RH_TRY_STATUS(result_.reserve(bytes, "the largest logits"));
  shape_ = shape;
  rows_ = rows;
  return {};
}

void TopFinder::find(cudaStream_t stream) const {
  TopLogitsCall call;
  call.rows = shape_.rows;
  call.logits = rows_;
  call.stride = shape_.features;
  call.vocabulary = vocabulary_;
  call.workspace = workspace_.as<void>();
  call.out = results_.as<TopRow>();
  find_top_logits(call, stream);
}

Status TopFinder::copy(cudaStream_t stream) {
  if (shape_.rows == 0) return {};
  const size_t bytes = static_cast<size_t>(shape_.rows) * sizeof(TopRow);
  return check(cudaMemcpyAsync(result_.data(), results_.as<void>(), bytes, cudaMemcpyDeviceToHost, stream),
               "copying the largest logits from the GPU");
}

Result<TopLogits> TopFinder::of(int row) const {
  if (row < 0 || row >= shape_.rows) {
    return make_error(ErrorKind::kInternal, "the last pass found no largest logits of row {}", row);
  }
  const auto& top = reinterpret_cast<const TopRow*>(result_.data())[row];
  const auto count = static_cast<size_t>(top.count);
  return TopLogits{{top.tokens, count}, {top.logits, count}, top.exp_sum, top.possible, top.broken != 0};
}

Result<std::span<const float>> TopFinder::fetch(int first, int count, cudaStream_t stream) {
  if (first < 0 || count < 0 || first + count > shape_.rows) {
    return make_error(ErrorKind::kInternal, "the last pass kept no output rows {} to {}", first,
                      first + count - 1);
  }
  const auto width = static_cast<size_t>(shape_.features);
  const size_t values = static_cast<size_t>(count) * width;
  const size_t bytes = values * sizeof(float);
  RH_TRY_STATUS(fetched_.reserve(bytes, "rows of logits"));
  RH_TRY_STATUS(check(cudaMemcpyAsync(fetched_.data(), rows_ + static_cast<size_t>(first) * width, bytes,
                                      cudaMemcpyDeviceToHost, stream),
                      "copying rows of logits from the GPU"));
  return std::span<const float>(reinterpret_cast<const float*>(fetched_.data()), values);
}

}  // namespace rhapsode::kernels::cuda
