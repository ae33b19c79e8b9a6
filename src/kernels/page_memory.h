// Where the bytes of page blocks lie: host memory, or the memory of a device.
//
// A PageMemory owns one region (or one on each of several devices: sharded_page_memory.h), reserved once,
// that store/page_pool cuts into blocks; Page::data points into it. Only kernels of the back end that made it
// may follow such a pointer, unless host_addressable(): every other use goes through the copies here. Copies
// are complete when they return and see everything that a finished pass wrote. Threads: reserve() once,
// before anything else; the copies by any. Errors: kNoSpace when the region cannot be had; kInternal with the
// device's own words when a copy fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"

namespace rhapsode::kernels {

// Copies into a device that may be on their way still; one that is not finished, the end finishes. While it
// lives the memory does, and what is copied stays as it is. Threads: one at a time.
class PageArrival {
 public:
  virtual ~PageArrival() = default;
  // What Page::arrival is to say of the pages copied into; 0: they are there.
  virtual uint64_t number() const { return 0; }
  // Waits until they are there. Errors: those of copy_all_in(); the pages hold nothing then.
  virtual Status finish() { return {}; }
};

class PageMemory {
 public:
  virtual ~PageMemory() = default;
  virtual Result<std::byte*> reserve(size_t bytes) = 0;
  // Devices whose memory this is: pages of device i (Page::device) lie in region i.
  virtual int devices() const { return 1; }
  // Instead of reserve(): a region of so many bytes on every device.
  virtual Result<std::vector<std::byte*>> reserve_each(size_t bytes);
  virtual bool host_addressable() const = 0;
  // How many bytes a region may well have, when nobody says how many.
  virtual uint64_t suggested_bytes() const = 0;
  virtual Status copy_in(std::byte* to, std::span<const std::byte> from) = 0;
  virtual Status copy_out(const std::byte* from, std::span<std::byte> to) = 0;
  virtual Status copy_within(const std::byte* from, std::byte* to, size_t bytes) = 0;

  // Many copies at once: a device has them all on the way before it waits.
  struct CopyIn {
    std::byte* to = nullptr;
    std::span<const std::byte> from;
  };
  struct CopyOut {
    const std::byte* from = nullptr;
    std::span<std::byte> to;
  };
  struct CopyWithin {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  // In any order, even at once: no byte that one of them writes is read or written by another.
  virtual Status copy_all_in(std::span<const CopyIn> copies);
  // copy_all_in() of whole blocks that passes may read from now on: where the memory can, layers arrive one
  // behind the other, and a pass that comes to a layer waits for it. Other copies see what has arrived.
  virtual Result<std::unique_ptr<PageArrival>> begin_copies_in(std::span<const CopyIn> copies);
  virtual Status copy_all_out(std::span<const CopyOut> copies);
  virtual Status copy_all_within(std::span<const CopyWithin> copies);
  // Whether private copies of pages cost little beside reading them once.
  virtual bool copies_cheaply() const { return false; }

  // Host memory from and to which this memory's copies are fastest; null where it lies on the host itself.
  virtual std::unique_ptr<PageMemory> new_staging() { return nullptr; }
  // How large the parts are that the region is cut into, from its beginning on. Where a memory takes its time
  // over making them ready (staging), it begins to, on a thread of its own. Called once, behind reserve().
  virtual void prepare_ahead(size_t /*part_bytes*/) {}
  // To be called before such a part is first written. kNoSpace: it cannot be had; do without it.
  virtual Status prepare(std::span<const std::byte> /*part*/) { return {}; }
};

// Address space of this process: pages of memory are taken when first written. Suggests a quarter of the
// memory.
std::unique_ptr<PageMemory> host_page_memory();

}  // namespace rhapsode::kernels
