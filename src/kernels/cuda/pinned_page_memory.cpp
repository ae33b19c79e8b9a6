#include "kernels/cuda/pinned_page_memory.h"

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
      if (slabs_[slab] == Slab::kPinned) cudaHostUnregister(region_ + slab * slab_bytes_);
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
    std::lock_guard lock(mutex_);
    if (slabs_.empty()) choose_slabs(part.size());
    const auto begin = static_cast<size_t>(part.data() - region_);
    for (size_t slab = begin / slab_bytes_; slab * slab_bytes_ < begin + part.size(); ++slab) {
      if (slabs_[slab] == Slab::kUntouched) pin(slab);
      if (slabs_[slab] == Slab::kRefused) {
        return make_error(ErrorKind::kNoSpace, "the system pins no more memory than {} MiB",
                          slab * slab_bytes_ >> 20);
      }
    }
    return {};
  }

 private:
  enum class Slab : uint8_t { kUntouched, kPinned, kRefused };

  // A copy may not cross from one pinned slab into the next: slabs are made of whole parts, which are all of
  // one size, and of whole pages of the system.
  void choose_slabs(size_t part_bytes) {
    const size_t unit = std::lcm(part_bytes, kSystemPage);
    slab_bytes_ = (kLeastSlabBytes + unit - 1) / unit * unit;
    slabs_.resize((bytes_ + slab_bytes_ - 1) / slab_bytes_, Slab::kUntouched);
  }

  void pin(size_t slab) {
    const size_t begin = slab * slab_bytes_;
    const cudaError_t code =
        cudaHostRegister(region_ + begin, std::min(slab_bytes_, bytes_ - begin), cudaHostRegisterPortable);
    if (code != cudaSuccess) cudaGetLastError();  // else the next launch would report it
    slabs_[slab] = code == cudaSuccess ? Slab::kPinned : Slab::kRefused;
  }

  std::unique_ptr<PageMemory> host_ = host_page_memory();
  std::byte* region_ = nullptr;
  size_t bytes_ = 0;
  std::mutex mutex_;
  size_t slab_bytes_ = 0;    // guarded by mutex_ until the first slab is pinned, then constant
  std::vector<Slab> slabs_;  // guarded by mutex_; empty before the first part
};

}  // namespace

std::unique_ptr<PageMemory> pinned_page_memory() {
  return std::make_unique<PinnedPageMemory>();
}

}  // namespace rhapsode::kernels::cuda
