#include "kernels/cuda/device_page_memory.h"

#include <mutex>

#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/pinned_page_memory.h"

namespace rhapsode::kernels::cuda {

namespace {

class DevicePageMemory final : public PageMemory {
 public:
  ~DevicePageMemory() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  Result<std::byte*> reserve(size_t bytes) override {
    RH_TRY_STATUS(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a copy stream"));
    RH_TRY_STATUS(region_.allocate(bytes, "pages of keys and values (--kv-cap)"));
    return region_.as<std::byte>();
  }

  bool host_addressable() const override { return false; }

  uint64_t suggested_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    cudaMemGetInfo(&free, &total);
    return free / 5 * 4;
  }

  Status copy_in(std::byte* to, std::span<const std::byte> from) override {
    return copy(to, from.data(), from.size(), cudaMemcpyHostToDevice);
  }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    return copy(to.data(), from, to.size(), cudaMemcpyDeviceToHost);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    return copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  Status copy_all_in(std::span<const CopyIn> copies) override {
    std::lock_guard lock(mutex_);
    for (const CopyIn& one : copies) {
      RH_TRY_STATUS(start(one.to, one.from.data(), one.from.size(), cudaMemcpyHostToDevice));
    }
    return finish();
  }
  Status copy_all_out(std::span<const CopyOut> copies) override {
    std::lock_guard lock(mutex_);
    for (const CopyOut& one : copies) {
      RH_TRY_STATUS(start(one.to.data(), one.from, one.to.size(), cudaMemcpyDeviceToHost));
    }
    return finish();
  }

  std::unique_ptr<PageMemory> new_staging() override { return pinned_page_memory(); }

 private:
  Status start(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const Status started = check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying pages");
    // What is on the way still reads and writes the caller's memory.
    if (!started.ok()) cudaStreamSynchronize(stream_);
    return started;
  }
  Status finish() { return check(cudaStreamSynchronize(stream_), "copying pages"); }

  Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    std::lock_guard lock(mutex_);
    RH_TRY_STATUS(start(to, from, bytes, kind));
    return finish();
  }

  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer region_;
};

}  // namespace

std::unique_ptr<PageMemory> device_page_memory() {
  return std::make_unique<DevicePageMemory>();
}

}  // namespace rhapsode::kernels::cuda
