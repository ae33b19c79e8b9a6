// Memory of the device and pinned memory of the host, as values that free themselves.
//
// Ownership: move-only. Threads: one at a time. Errors: kNoSpace, with what it was for and how much is free.
// Cost: an allocation waits for the whole device, so buffers grow rarely (by half at least) and are kept.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/result.h"

namespace rhapsode::kernels::cuda {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer();

  // Exactly `bytes`; what was there is gone. `what` names it in the error: "the weights".
  Status allocate(size_t bytes, const char* what);
  // At least `bytes`: contents are lost when it grows. True in `moved` when the address changed.
  Status reserve(size_t bytes, const char* what, bool* moved = nullptr);
  Status upload(std::span<const std::byte> from);  // waits

  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  template <typename T>
  T* at(size_t byte_offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte_offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  ~PinnedBuffer();
  Status reserve(size_t bytes, const char* what);
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rhapsode::kernels::cuda
