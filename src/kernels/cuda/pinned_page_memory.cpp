#include "kernels/cuda/pinned_page_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <vector>

#include "base/system.h"
#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kLeastSlabBytes = 64u << 20;
constexpr size_t kSystemPage = 4096;
// The tier is a convenience: most of the memory stays everybody's.
constexpr uint64_t kShareOfMemory = 8;

class PinnedPageMemory final : public PageMemory {
 public:
  ~PinnedPageMemory() override {
    for (size_t slab = 0; slab < slabs_.size(); ++slab) {
      if (slabs_[slab].state == SlabState::kPinned) cudaHostUnregister(region_ + slab * slab_bytes_);
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

  Status prepare(std::span<const std::byte> part) override {
    std::call_once(chosen_, [&] { choose_slabs(part.size()); });
    const auto begin = static_cast<size_t>(part.data() - region_);
    for (size_t slab = begin / slab_bytes_; slab * slab_bytes_ < begin + part.size(); ++slab) {
      std::call_once(slabs_[slab].pinned, [&] { pin(slab); });
      if (slabs_[slab].state == SlabState::kRefused) {
        return make_error(ErrorKind::kNoSpace, "the system pins no more memory than {} MiB",
                          slab * slab_bytes_ >> 20);
      }
    }
    return {};
  }

 private:
  enum class SlabState : uint8_t { kUntouched, kPinned, kRefused };
  // Several slabs are pinned by as many threads at once.
  struct Slab {
    std::once_flag pinned;
    SlabState state = SlabState::kUntouched;  // changed once, by who pins
  };

  // A copy may not cross from one pinned slab into the next: slabs are made of whole parts, which are all of
  // one size, and of whole pages of the system.
  void choose_slabs(size_t part_bytes) {
    const size_t unit = std::lcm(part_bytes, kSystemPage);
    slab_bytes_ = (kLeastSlabBytes + unit - 1) / unit * unit;
    slabs_ = std::vector<Slab>((bytes_ + slab_bytes_ - 1) / slab_bytes_);
  }

  void pin(size_t slab) {
    const size_t begin = slab * slab_bytes_;
    const size_t bytes = std::min(slab_bytes_, bytes_ - begin);
    // The system clears fresh memory first; the driver would let it do so one slab after another.
#ifdef MADV_POPULATE_WRITE
    madvise(region_ + begin, bytes, MADV_POPULATE_WRITE);
#endif
    const cudaError_t code = cudaHostRegister(region_ + begin, bytes, cudaHostRegisterPortable);
    if (code != cudaSuccess) cudaGetLastError();  // else the next launch would report it
    slabs_[slab].state = code == cudaSuccess ? SlabState::kPinned : SlabState::kRefused;
  }

  std::unique_ptr<PageMemory> host_ = host_page_memory();
  std::byte* region_ = nullptr;
  size_t bytes_ = 0;
  std::once_flag chosen_;
  size_t slab_bytes_ = 0;    // from then on
  std::vector<Slab> slabs_;  // likewise
};

}  // namespace

std::unique_ptr<PageMemory> pinned_page_memory() {
  return std::make_unique<PinnedPageMemory>();
}

}  // namespace rhapsode::kernels::cuda
