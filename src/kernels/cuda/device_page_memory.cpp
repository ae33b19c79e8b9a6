#include "kernels/cuda/device_page_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "kernels/cuda/attend.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_scope.h"
#include "kernels/cuda/page_gather.h"
#include "kernels/cuda/pinned_page_memory.h"
#include "kernels/page_sum.h"

namespace rhapsode::kernels::cuda {

namespace {

// A copy of its own costs a block some microseconds: below this size a kernel gathers them much faster, which
// is worth the multiprocessors that it takes from passes meanwhile (docs/decisions/0021).
constexpr size_t kLargestGathered = 128 << 10;
constexpr size_t kFewestGathered = 8;
// Of so many blocks one is summed on both sides of the bus.
constexpr size_t kSummedOneIn = 16;
constexpr size_t kUnit = 16;  // bytes a kernel moves at a time
// Copies within the GPU's memory take all of it, whatever their size.
constexpr GatherShape kWithin{2 * kProcessors, 512, true};

bool in_units(const void* to, const void* from, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % kUnit == 0;
}
bool in_units(const PageMemory::CopyIn& copy) {
  return in_units(copy.to, copy.from.data(), copy.from.size());
}

// Enough blocks of one size to let one kernel copy them all.
bool can_copy_at_once(std::span<const PageMemory::CopyWithin> copies) {
  return copies.size() >= kFewestGathered && std::ranges::all_of(copies, [&](const auto& one) {
           return one.bytes == copies.front().bytes && in_units(one.to, one.from, one.bytes);
         });
}

class DevicePageMemory final : public PageMemory {
 public:
  explicit DevicePageMemory(int device) : device_(device) {}
  ~DevicePageMemory() override {
    if (stream_) cudaStreamDestroy(stream_);
  }

  Result<std::byte*> reserve(size_t bytes) override {
    const DeviceScope scope(device_);
    RH_TRY_STATUS(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a copy stream"));
    RH_TRY_STATUS(region_.allocate(bytes, "pages of keys and values (--kv-cap)"));
    return region_.as<std::byte>();
  }

  bool host_addressable() const override { return false; }

  uint64_t suggested_bytes() const override {
    const DeviceScope scope(device_);
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
    const DeviceScope scope(device_);
    const Status status = carry_in(copies);
    // What is on the way still reads and writes the caller's memory.
    if (!status.ok()) cudaStreamSynchronize(stream_);
    return status;
  }
  Status copy_all_out(std::span<const CopyOut> copies) override {
    std::lock_guard lock(mutex_);
    const DeviceScope scope(device_);
    for (const CopyOut& one : copies) {
      RH_TRY_STATUS(start(one.to.data(), one.from, one.to.size(), cudaMemcpyDeviceToHost));
    }
    return finish();
  }

  Status copy_all_within(std::span<const CopyWithin> copies) override {
    std::lock_guard lock(mutex_);
    const DeviceScope scope(device_);
    if (can_copy_at_once(copies)) {
      std::vector<GatherPage> pages;
      for (const CopyWithin& one : copies) pages.push_back({one.from, one.to});
      const Status started = gather(pages, copies.front().bytes, kWithin);
      const Status finished = finish();  // the list may be on its way even where the kernel is not
      return started.ok() ? finished : started;
    }
    for (const CopyWithin& one : copies) {
      RH_TRY_STATUS(start(one.to, one.from, one.bytes, cudaMemcpyDeviceToDevice));
    }
    return finish();
  }
  bool copies_cheaply() const override { return true; }

  std::unique_ptr<PageMemory> new_staging() override { return pinned_page_memory(device_); }

 private:
  Status carry_in(std::span<const CopyIn> copies);
  static bool can_gather(std::span<const CopyIn> copies);
  Status gather(std::span<const GatherPage> pages, size_t page_bytes, const GatherShape& shape);
  std::vector<size_t> choose_summed(std::span<const CopyIn> copies);
  Status start_sums(std::span<const CopyIn> copies, std::span<const size_t> chosen);

  Status start(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    const Status started = check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying pages");
    if (!started.ok()) cudaStreamSynchronize(stream_);
    return started;
  }
  Status finish() { return check(cudaStreamSynchronize(stream_), "copying pages"); }

  Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    std::lock_guard lock(mutex_);
    const DeviceScope scope(device_);
    RH_TRY_STATUS(start(to, from, bytes, kind));
    return finish();
  }

  int device_;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer region_;
  // Of copies into the device and within it, which run one after the other.
  PinnedBuffer list_, arrived_;
  DeviceBuffer device_list_, sums_;
  size_t next_summed_ = 0;
};

Status DevicePageMemory::carry_in(std::span<const CopyIn> copies) {
  if (can_gather(copies)) {
    std::vector<GatherPage> pages;
    for (const CopyIn& one : copies) pages.push_back({one.from.data(), one.to});
    RH_TRY_STATUS(gather(pages, copies.front().from.size(), {}));
  } else {
    for (const CopyIn& one : copies) {
      RH_TRY_STATUS(start(one.to, one.from.data(), one.from.size(), cudaMemcpyHostToDevice));
    }
  }
  const std::vector<size_t> chosen = choose_summed(copies);
  RH_TRY_STATUS(start_sums(copies, chosen));
  std::vector<uint64_t> sent;
  for (const size_t i : chosen) sent.push_back(page_sum(copies[i].from));
  RH_TRY_STATUS(finish());
  if (!std::equal(sent.begin(), sent.end(), reinterpret_cast<const uint64_t*>(arrived_.data()))) {
    return make_error(ErrorKind::kInternal,
                      "a page has other bytes on the GPU than on the host it was copied from: their memory, "
                      "the bus between them, or the order of copies is at fault");
  }
  return {};
}

// Small blocks of one size that the GPU can read where they lie: pinned, at the address the host knows.
bool DevicePageMemory::can_gather(std::span<const CopyIn> copies) {
  if (copies.size() < kFewestGathered) return false;
  const size_t bytes = copies.front().from.size();
  if (bytes == 0 || bytes > kLargestGathered) return false;
  for (const CopyIn& one : copies) {
    if (one.from.size() != bytes || !in_units(one)) return false;
    // Memory is pinned in large pieces, and a block may lie across two.
    for (const std::byte* at : {one.from.data(), one.from.data() + bytes - 1}) {
      cudaPointerAttributes attributes{};
      if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) {
        cudaGetLastError();
        return false;
      }
      if (attributes.type != cudaMemoryTypeHost || attributes.devicePointer != at) return false;
    }
  }
  return true;
}

Status DevicePageMemory::gather(std::span<const GatherPage> pages, size_t page_bytes,
                                const GatherShape& shape) {
  RH_TRY_STATUS(list_.reserve(pages.size_bytes(), "a list of pages"));
  RH_TRY_STATUS(device_list_.reserve(pages.size_bytes(), "a list of pages"));
  std::memcpy(list_.data(), pages.data(), pages.size_bytes());
  RH_TRY_STATUS(start(device_list_.as<void>(), list_.data(), pages.size_bytes(), cudaMemcpyHostToDevice));
  const GatherCall call{device_list_.as<const GatherPage>(), static_cast<int64_t>(pages.size()), page_bytes};
  return check(gather_pages(call, shape, stream_), "gathering pages");
}

// Every sixteenth, from another one on each time.
std::vector<size_t> DevicePageMemory::choose_summed(std::span<const CopyIn> copies) {
  std::vector<size_t> chosen;
  size_t i = next_summed_;
  for (; i < copies.size(); i += kSummedOneIn) {
    if (in_units(copies[i])) chosen.push_back(i);
  }
  next_summed_ = (i - copies.size()) % kSummedOneIn;
  return chosen;
}

Status DevicePageMemory::start_sums(std::span<const CopyIn> copies, std::span<const size_t> chosen) {
  const size_t bytes = chosen.size() * sizeof(uint64_t);
  RH_TRY_STATUS(arrived_.reserve(bytes, "sums of pages"));
  RH_TRY_STATUS(sums_.reserve(bytes, "sums of pages"));
  if (chosen.empty()) return {};
  RH_TRY_STATUS(check(cudaMemsetAsync(sums_.as<void>(), 0, bytes, stream_), "clearing sums"));
  for (size_t c = 0; c < chosen.size(); ++c) {
    const CopyIn& one = copies[chosen[c]];
    RH_TRY_STATUS(
        check(sum_page(one.to, one.from.size(), sums_.as<uint64_t>() + c, stream_), "summing a page"));
  }
  return start(arrived_.data(), sums_.as<void>(), bytes, cudaMemcpyDeviceToHost);
}

}  // namespace

std::unique_ptr<PageMemory> device_page_memory(int device) {
  return std::make_unique<DevicePageMemory>(device);
}

}  // namespace rhapsode::kernels::cuda
