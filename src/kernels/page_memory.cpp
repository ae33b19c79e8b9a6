#include "kernels/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/system.h"

namespace rhapsode::kernels {

namespace {

class HostPageMemory final : public PageMemory {
 public:
  ~HostPageMemory() override {
    if (region_) munmap(region_, bytes_);
  }

  Result<std::byte*> reserve(size_t bytes) override {
    void* region =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return make_system_error(errno, "reserving address space for the KV cap");
    // Attention streams whole pages: huge pages save most of its TLB misses. Only advice, so a refusal is
    // harmless.
    madvise(region, bytes, MADV_HUGEPAGE);
    region_ = region;
    bytes_ = bytes;
    return static_cast<std::byte*>(region);
  }

  bool host_addressable() const override { return true; }
  uint64_t suggested_bytes() const override { return memory_bytes() / 4; }

  Status copy_in(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
    return {};
  }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    std::memcpy(to.data(), from, to.size());
    return {};
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }

 private:
  void* region_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

Result<std::vector<std::byte*>> PageMemory::reserve_each(size_t bytes) {
  RH_TRY(std::byte* const region, reserve(bytes));
  return std::vector<std::byte*>{region};
}

Status PageMemory::copy_all_in(std::span<const CopyIn> copies) {
  for (const CopyIn& copy : copies) RH_TRY_STATUS(copy_in(copy.to, copy.from));
  return {};
}

Result<std::unique_ptr<PageArrival>> PageMemory::begin_copies_in(std::span<const CopyIn> copies) {
  RH_TRY_STATUS(copy_all_in(copies));
  return std::make_unique<PageArrival>();
}

Status PageMemory::copy_all_out(std::span<const CopyOut> copies) {
  for (const CopyOut& copy : copies) RH_TRY_STATUS(copy_out(copy.from, copy.to));
  return {};
}

Status PageMemory::copy_all_within(std::span<const CopyWithin> copies) {
  for (const CopyWithin& copy : copies) RH_TRY_STATUS(copy_within(copy.from, copy.to, copy.bytes));
  return {};
}

std::unique_ptr<PageMemory> host_page_memory() {
  return std::make_unique<HostPageMemory>();
}

}  // namespace rhapsode::kernels
