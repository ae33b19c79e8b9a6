#include "kernels/cuda/pinned_page_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "base/system.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_scope.h"
#include "kernels/prepared_slabs.h"

namespace rhapsode::kernels::cuda {

namespace {

// Small, since other calls into the driver wait while it registers one: half a millisecond.
constexpr size_t kLeastSlabBytes = 16u << 20;
constexpr size_t kSystemPage = 4096;
// The system clears memory in pieces of this size: while it does, whoever maps memory waits.
constexpr size_t kPieceBytes = 2u << 20;
// Clearing is most of the work, and goes several times as fast by a few threads.
constexpr int kMostThreadsAhead = 4;
// The tier is a convenience: most of the memory stays everybody's.
constexpr uint64_t kShareOfMemory = 8;

class PinnedPageMemory final : public PageMemory {
 public:
  explicit PinnedPageMemory(int device) : device_(device) {}
  ~PinnedPageMemory() override {
    slabs_.reset();  // from here on nobody pins
    const DeviceScope scope(device_);
    for (size_t slab = 0; slab < pinned_.size(); ++slab) {
      if (pinned_[slab]) cudaHostUnregister(region_ + slab * slab_bytes_);
    }
  }

  Result<std::byte*> reserve(size_t bytes) override {
    RH_TRY(region_, host_->reserve(bytes));
    bytes_ = bytes;
    return region_;
  }

  bool host_addressable() const override { return true; }
  uint64_t suggested_bytes() const override { return memory_bytes() / kShareOfMemory; }

  Status copy_in(std::byte* to, std::span<const std::byte> from) override { return host_->copy_in(to, from); }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    return host_->copy_out(from, to);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    return host_->copy_within(from, to, bytes);
  }

  // A copy may not cross from one pinned slab into the next: slabs are made of whole parts, which are all of
  // one size, and of whole pages of the system.
  void prepare_ahead(size_t part_bytes) override {
    const size_t unit = std::lcm(part_bytes, kSystemPage);
    slab_bytes_ = (kLeastSlabBytes + unit - 1) / unit * unit;
    pinned_.resize((bytes_ + slab_bytes_ - 1) / slab_bytes_);
    const int threads = std::clamp(usable_cores() / 2, 1, kMostThreadsAhead);
    slabs_.emplace(pinned_.size(), PreparedSlabs::Ahead{kPinnedAheadBytes / slab_bytes_ + 1, threads},
                   [this](size_t slab) { return (pinned_[slab] = pin(slab)) != 0; });
  }

  Status prepare(std::span<const std::byte> part) override {
    if (!slabs_) return make_error(ErrorKind::kInternal, "pages were asked for before prepare_ahead()");
    const auto begin = static_cast<size_t>(part.data() - region_);
    for (size_t slab = begin / slab_bytes_; slab * slab_bytes_ < begin + part.size(); ++slab) {
      if (!slabs_->need(slab)) {
        return make_error(ErrorKind::kNoSpace, "the system pins no more memory than {} MiB",
                          slab * slab_bytes_ >> 20);
      }
    }
    return {};
  }

 private:
  bool pin(size_t slab) {
    const DeviceScope scope(device_);
    const size_t begin = slab * slab_bytes_;
    const size_t bytes = std::min(slab_bytes_, bytes_ - begin);
    // The system clears fresh memory first; the driver would do that with its locks held.
#ifdef MADV_POPULATE_WRITE
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      madvise(region_ + begin + at, std::min(kPieceBytes, bytes - at), MADV_POPULATE_WRITE);
    }
#endif
    const cudaError_t code = cudaHostRegister(region_ + begin, bytes, cudaHostRegisterPortable);
    if (code == cudaSuccess) return true;
    cudaGetLastError();  // else the next launch would report it
    madvise(region_ + begin, bytes, MADV_DONTNEED);
    return false;
  }

  int device_;
  std::unique_ptr<PageMemory> host_ = host_page_memory();
  std::byte* region_ = nullptr;
  size_t bytes_ = 0;
  size_t slab_bytes_ = 0;        // from prepare_ahead() on
  std::vector<uint8_t> pinned_;  // [slabs] each written once, by who pins it
  std::optional<PreparedSlabs> slabs_;
};

}  // namespace

std::unique_ptr<PageMemory> pinned_page_memory(int device) {
  return std::make_unique<PinnedPageMemory>(device);
}

}  // namespace rhapsode::kernels::cuda
