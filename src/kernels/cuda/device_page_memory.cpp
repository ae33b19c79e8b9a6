#include "kernels/cuda/device_page_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cuda/attend.h"
#include "kernels/cuda/copy_batch.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_scope.h"
#include "kernels/cuda/page_gather.h"
#include "kernels/cuda/pinned_page_memory.h"
#include "kernels/cuda/trip_sums.h"

namespace rhapsode::kernels::cuda {

namespace {

// Even in a batch a copy costs a block a microsecond: below this size a kernel gathers them faster, which is
// worth the multiprocessors that it takes from passes meanwhile (docs/decisions/0021).
constexpr size_t kLargestGathered = 64 << 10;
constexpr size_t kFewestGathered = 8;
// Copies within the GPU's memory take all of it, whatever their size.
constexpr GatherShape kWithin{2 * kProcessors, 512, true};

// Enough blocks of one size to let one kernel copy them all.
bool can_copy_at_once(std::span<const PageMemory::CopyWithin> copies) {
  return copies.size() >= kFewestGathered && std::ranges::all_of(copies, [&](const auto& one) {
           return one.bytes == copies.front().bytes && in_units(one.to, one.from, one.bytes);
         });
}

class DevicePageMemory final : public PageMemory {
 public:
  DevicePageMemory(int device, std::shared_ptr<PageArrivals> arrivals)
      : device_(device), arrivals_(std::move(arrivals)) {}
  ~DevicePageMemory() override {
    if (coming_) static_cast<void>(settle(*coming_));
    if (all_here_) cudaEventDestroy(all_here_);
    if (stream_) cudaStreamDestroy(stream_);
  }

  Result<std::byte*> reserve(size_t bytes) override {
    const DeviceScope scope(device_);
    RH_TRY_STATUS(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a copy stream"));
    RH_TRY_STATUS(check(cudaEventCreateWithFlags(&all_here_, cudaEventDisableTiming), "making an event"));
    if (arrivals_) RH_TRY_STATUS(arrivals_->start());
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
  Result<std::unique_ptr<PageArrival>> begin_copies_in(std::span<const CopyIn> copies) override;
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
  Status gather(std::span<const GatherPage> pages, size_t page_bytes, const GatherShape& shape);

  // What begin_copies_in() began; one at a time.
  struct Coming {
    uint64_t number = 0;
    std::thread summing;  // the host's sums, beside passes
    bool settled = false;
    Status status;
  };
  class Arrival;
  bool arrives_by_layer(std::span<const CopyIn> copies) const;
  Status start_layers(std::span<const CopyIn> copies);
  Status settle(Coming& coming);

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
  PinnedBuffer list_;
  DeviceBuffer device_list_;
  TripSums sums_;
  std::shared_ptr<PageArrivals> arrivals_;  // null: nothing arrives by layers
  std::shared_ptr<Coming> coming_;          // the latest
  TripSums coming_sums_;
  cudaEvent_t all_here_ = nullptr;  // of the latest
};

class DevicePageMemory::Arrival final : public PageArrival {
 public:
  Arrival(DevicePageMemory& memory, std::shared_ptr<Coming> coming)
      : memory_(memory), coming_(std::move(coming)) {}
  ~Arrival() override { static_cast<void>(Arrival::finish()); }
  uint64_t number() const override { return coming_->number; }
  Status finish() override {
    std::lock_guard lock(memory_.mutex_);
    return memory_.settle(*coming_);
  }

 private:
  DevicePageMemory& memory_;
  std::shared_ptr<Coming> coming_;
};

// Pinned, at the address the host knows. Memory is pinned in large pieces, and a block may lie across two.
bool lies_pinned(const PageMemory::CopyIn& copy) {
  for (const std::byte* at : {copy.from.data(), copy.from.data() + copy.from.size() - 1}) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    if (attributes.type != cudaMemoryTypeHost || attributes.devicePointer != at) return false;
  }
  return true;
}

// Enough blocks of one size, all of them pinned.
bool can_copy_together(std::span<const PageMemory::CopyIn> copies) {
  if (copies.size() < kFewestGathered || copies.front().from.empty()) return false;
  return std::ranges::all_of(copies, [&](const PageMemory::CopyIn& copy) {
    return copy.from.size() == copies.front().from.size() && lies_pinned(copy);
  });
}

// Small blocks that the GPU can read where they lie.
bool can_gather(std::span<const PageMemory::CopyIn> copies) {
  return copies.front().from.size() <= kLargestGathered &&
         std::ranges::all_of(copies, [](const PageMemory::CopyIn& copy) {
           return in_units(copy.to, copy.from.data(), copy.from.size());
         });
}

Status DevicePageMemory::carry_in(std::span<const CopyIn> copies) {
  if (!can_copy_together(copies)) {
    for (const CopyIn& one : copies) {
      RH_TRY_STATUS(start(one.to, one.from.data(), one.from.size(), cudaMemcpyHostToDevice));
    }
  } else if (can_gather(copies)) {
    std::vector<GatherPage> pages;
    for (const CopyIn& one : copies) pages.push_back({one.from.data(), one.to});
    RH_TRY_STATUS(gather(pages, copies.front().from.size(), {}));
  } else {
    RH_TRY_STATUS(copy_batch(copies, 0, copies.front().from.size(), stream_));
  }
  RH_TRY_STATUS(sums_.start(copies, stream_));
  sums_.sum_host();
  RH_TRY_STATUS(finish());
  return sums_.compare();
}

bool DevicePageMemory::arrives_by_layer(std::span<const CopyIn> copies) const {
  return arrivals_ && arrivals_->parts().size() > 1 && can_copy_together(copies) &&
         copies.front().from.size() == arrivals_->block_bytes();
}

Result<std::unique_ptr<PageArrival>> DevicePageMemory::begin_copies_in(std::span<const CopyIn> copies) {
  std::unique_lock lock(mutex_);
  const DeviceScope scope(device_);
  if (!arrives_by_layer(copies)) {
    lock.unlock();
    return PageMemory::begin_copies_in(copies);
  }
  if (coming_) static_cast<void>(settle(*coming_));  // whoever began it is told
  const auto coming = std::make_shared<Coming>();
  coming->number = arrivals_->next();
  if (const Status started = start_layers(copies); !started.ok()) {
    cudaStreamSynchronize(stream_);  // what is on the way still reads and writes the caller's memory
    arrivals_->done(coming->number);
    return started.error();
  }
  coming_ = coming;
  try {
    coming->summing = std::thread([this] { coming_sums_.sum_host(); });
  } catch (const std::system_error&) {
    coming_sums_.sum_host();
  }
  return std::unique_ptr<PageArrival>(std::make_unique<Arrival>(*this, coming));
}

Status DevicePageMemory::start_layers(std::span<const CopyIn> copies) {
  const std::span<const PageArrivals::Part> parts = arrivals_->parts();
  for (size_t part = 0; part < parts.size(); ++part) {
    RH_TRY_STATUS(copy_batch(copies, parts[part].offset, parts[part].bytes, stream_));
    RH_TRY_STATUS(arrivals_->arrives(part, stream_));
  }
  RH_TRY_STATUS(coming_sums_.start(copies, stream_));
  return check(cudaEventRecord(all_here_, stream_), "copying pages");
}

Status DevicePageMemory::settle(Coming& coming) {
  if (coming.settled) return coming.status;
  if (coming.summing.joinable()) coming.summing.join();
  const DeviceScope scope(device_);
  coming.status = check(cudaEventSynchronize(all_here_), "copying pages");
  if (coming.status.ok()) coming.status = coming_sums_.compare();
  arrivals_->done(coming.number);
  coming.settled = true;
  return coming.status;
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

}  // namespace

std::unique_ptr<PageMemory> device_page_memory(int device, std::shared_ptr<PageArrivals> arrivals) {
  return std::make_unique<DevicePageMemory>(device, std::move(arrivals));
}

}  // namespace rhapsode::kernels::cuda
