#include "kernels/sharded_page_memory.h"

#include <algorithm>
#include <functional>

#include "base/parallel.h"

namespace rhapsode::kernels {

namespace {

class ShardedPageMemory final : public PageMemory {
 public:
  explicit ShardedPageMemory(std::vector<std::unique_ptr<PageMemory>> memories)
      : memories_(std::move(memories)) {}

  Result<std::byte*> reserve(size_t /*bytes*/) override {
    return make_error(ErrorKind::kInternal, "memory of {} devices is no one region", devices());
  }
  int devices() const override { return static_cast<int>(memories_.size()); }
  Result<std::vector<std::byte*>> reserve_each(size_t bytes) override {
    for (const auto& memory : memories_) {
      RH_TRY(std::byte* const region, memory->reserve(bytes));
      regions_.push_back(region);
    }
    region_bytes_ = bytes;
    return regions_;
  }

  bool host_addressable() const override {
    return std::all_of(memories_.begin(), memories_.end(),
                       [](const auto& memory) { return memory->host_addressable(); });
  }
  // As many from each as the one with the least has to spare.
  uint64_t suggested_bytes() const override {
    uint64_t least = UINT64_MAX;
    for (const auto& memory : memories_) least = std::min(least, memory->suggested_bytes());
    // Memory of the host is one, however many share it.
    return host_addressable() ? least : least * memories_.size();
  }

  Status copy_in(std::byte* to, std::span<const std::byte> from) override {
    RH_TRY(const size_t device, device_of(to));
    return memories_[device]->copy_in(to, from);
  }
  Status copy_out(const std::byte* from, std::span<std::byte> to) override {
    RH_TRY(const size_t device, device_of(from));
    return memories_[device]->copy_out(from, to);
  }
  Status copy_within(const std::byte* from, std::byte* to, size_t bytes) override {
    RH_TRY(const size_t source, device_of(from));
    RH_TRY(const size_t target, device_of(to));
    if (source == target) return memories_[source]->copy_within(from, to, bytes);
    std::vector<std::byte> between(bytes);
    RH_TRY_STATUS(memories_[source]->copy_out(from, between));
    return memories_[target]->copy_in(to, between);
  }
  Status copy_all_in(std::span<const CopyIn> copies) override {
    return copy_all(
        copies, [](const CopyIn& copy) { return copy.to; },
        [](PageMemory& memory, std::span<const CopyIn> own) { return memory.copy_all_in(own); });
  }
  Status copy_all_out(std::span<const CopyOut> copies) override {
    return copy_all(
        copies, [](const CopyOut& copy) { return copy.from; },
        [](PageMemory& memory, std::span<const CopyOut> own) { return memory.copy_all_out(own); });
  }
  // Those within a device there at once, the others one by one.
  Status copy_all_within(std::span<const CopyWithin> copies) override {
    std::vector<CopyWithin> within;
    for (const CopyWithin& copy : copies) {
      RH_TRY(const size_t source, device_of(copy.from));
      RH_TRY(const size_t target, device_of(copy.to));
      if (source == target) {
        within.push_back(copy);
      } else {
        RH_TRY_STATUS(copy_within(copy.from, copy.to, copy.bytes));
      }
    }
    return copy_all<CopyWithin>(
        within, [](const CopyWithin& copy) { return copy.to; },
        [](PageMemory& memory, std::span<const CopyWithin> own) { return memory.copy_all_within(own); });
  }
  bool copies_cheaply() const override {
    return std::all_of(memories_.begin(), memories_.end(),
                       [](const auto& memory) { return memory->copies_cheaply(); });
  }

  // What is fast for one device of a host is for all of them.
  std::unique_ptr<PageMemory> new_staging() override { return memories_.front()->new_staging(); }

 private:
  Result<size_t> device_of(const std::byte* address) const {
    const std::less<> before;  // of pointers into different regions
    for (size_t i = 0; i < regions_.size(); ++i) {
      if (!before(address, regions_[i]) && before(address, regions_[i] + region_bytes_)) return i;
    }
    return make_error(ErrorKind::kInternal, "an address lies in the memory of none of {} devices", devices());
  }

  template <class Copy, class Address, class Run>
  Status copy_all(std::span<const Copy> copies, const Address& address, const Run& run) {
    std::vector<std::vector<Copy>> own(memories_.size());
    for (const Copy& copy : copies) {
      RH_TRY(const size_t device, device_of(address(copy)));
      own[device].push_back(copy);
    }
    std::vector<Status> done(own.size());
    for_each_on_threads(own.size(), devices(), [&](size_t device) {
      if (!own[device].empty()) done[device] = run(*memories_[device], own[device]);
    });
    for (const Status& status : done) RH_TRY_STATUS(status);
    return {};
  }

  std::vector<std::unique_ptr<PageMemory>> memories_;
  std::vector<std::byte*> regions_;
  size_t region_bytes_ = 0;
};

}  // namespace

std::unique_ptr<PageMemory> sharded_page_memory(std::vector<std::unique_ptr<PageMemory>> memories) {
  return std::make_unique<ShardedPageMemory>(std::move(memories));
}

}  // namespace rhapsode::kernels
