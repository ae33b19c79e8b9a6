// The page pool: every page block of an engine, under one byte cap that holds at every moment.
//
// The pool reserves `cap_bytes` of a kernels::PageMemory once (on the host only address space, touched when a
// block is first written) and hands out blocks of KvShape::block_bytes(). With `bounds_bytes` every block
// also has room for its page bounds (kernels/page_bounds.h), which counts under the cap. A block lives as
// long as somebody holds a PagePin on it; pins are move-only and are shared on purpose only (PagePin::share).
// There is no other way to reach a block. Memory of several devices is cut evenly among them: a block lies on
// one (Page::device), and where it is wanted is a wish, so that a pool is full only when every device is.
// Cost: allocate, share and release are O(1); allocate never waits.
// Threads: all functions of PagePool and PagePin may be called from any thread; one pin object by one thread
// at a time. Errors: allocate() returns an empty pin when the cap is reached, so that the caller can evict or
// queue.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernels/page.h"
#include "kernels/page_memory.h"

namespace rhapsode::store {

class PagePool;

class PagePin {
 public:
  PagePin() = default;
  PagePin(PagePin&& other) noexcept;
  PagePin& operator=(PagePin&& other) noexcept;
  PagePin(const PagePin&) = delete;
  PagePin& operator=(const PagePin&) = delete;
  ~PagePin() { release(); }

  explicit operator bool() const { return page_ != nullptr; }
  kernels::Page* get() const { return page_; }
  kernels::Page* operator->() const { return page_; }

  PagePin share() const;
  const PagePool& pool() const { return *pool_; }  // not of an empty pin
  // True when no other pin exists: only then may the block be written.
  bool exclusive() const;
  void release();

 private:
  friend class PagePool;
  PagePin(PagePool* pool, kernels::Page* page) : pool_(pool), page_(page) {}
  PagePool* pool_ = nullptr;
  kernels::Page* page_ = nullptr;
};

struct PagePoolStats {
  uint64_t cap_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t block_bytes = 0;  // of one block, its bounds included
  uint64_t blocks_used = 0;
  uint64_t blocks_total = 0;
  uint64_t copies = 0;  // copy-on-write copies made
};

class PagePool {
 public:
  // Fails when the cap holds not even one block or the memory cannot be had. Outlives all of its pins.
  static Result<std::unique_ptr<PagePool>> create(
      const kernels::KvShape& shape, uint64_t cap_bytes, size_t bounds_bytes = 0,
      std::unique_ptr<kernels::PageMemory> memory = kernels::host_page_memory());
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // An empty block (count 0), or an empty pin when the cap is reached: on this device as long as it has room,
  // else on the emptiest().
  PagePin allocate(int device);
  PagePin allocate() { return allocate(emptiest()); }
  // The device with most room: where something new is best begun. Of equals the first.
  int emptiest() const;
  // A new block with the first `count` slots of `source`: the copy of copy-on-write, on the same device if it
  // has room. Empty pin at the cap, or when the memory's device fails.
  PagePin copy(const kernels::Page& source, int count);

  const kernels::KvShape& shape() const { return shape_; }
  kernels::PageMemory& memory() const;
  PagePoolStats stats() const;

 private:
  friend class PagePin;
  struct Impl;
  PagePool(const kernels::KvShape& shape, std::unique_ptr<Impl> impl);
  void add_reference(kernels::Page* page);
  void drop_reference(kernels::Page* page);
  bool sole_reference(const kernels::Page* page) const;

  kernels::KvShape shape_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rhapsode::store
