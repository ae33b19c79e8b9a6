#include "kernels/cuda/device_buffer.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

DeviceBuffer::~DeviceBuffer() {
  if (data_) cudaFree(data_);
}

Status DeviceBuffer::allocate(size_t bytes, const char* what) {
  if (data_) cudaFree(data_);
  data_ = nullptr;
  bytes_ = 0;
  const cudaError_t code = cudaMalloc(&data_, std::max<size_t>(bytes, 1));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return make_error(ErrorKind::kNoSpace, "the GPU has no {} MiB for {}: {} of its {} MiB are free",
                      bytes >> 20, what, free >> 20, total >> 20);
  }
  RH_TRY_STATUS(check(code, "allocating GPU memory"));
  bytes_ = bytes;
  return {};
}

Status DeviceBuffer::reserve(size_t bytes, const char* what, bool* moved) {
  if (bytes <= bytes_) return {};
  if (moved) *moved = true;
  return allocate(std::max(bytes, bytes_ + bytes_ / 2), what);
}

Status DeviceBuffer::upload(std::span<const std::byte> from) {
  return check(cudaMemcpy(data_, from.data(), from.size(), cudaMemcpyHostToDevice), "copying to the GPU");
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) cudaFreeHost(data_);
}

Status PinnedBuffer::reserve(size_t bytes, const char* what) {
  if (bytes <= bytes_) return {};
  bytes = std::max(bytes, bytes_ + bytes_ / 2);
  if (data_) cudaFreeHost(data_);
  data_ = nullptr;
  bytes_ = 0;
  void* data = nullptr;
  if (Status status = check(cudaMallocHost(&data, bytes), "pinning memory"); !status.ok()) {
    return make_error(ErrorKind::kNoSpace, "no {} MiB of pinned memory for {}: {}", bytes >> 20, what,
                      status.error().message);
  }
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
  return {};
}

}  // namespace rhapsode::kernels::cuda
