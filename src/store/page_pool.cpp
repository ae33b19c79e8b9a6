#include "store/page_pool.h"

#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>
#include <vector>

namespace rhapsode::store {

namespace {

// The first member is the page itself, so that a Page* leads back to its block.
struct Block {
  kernels::Page page;
  std::atomic<int32_t> references{0};
  kernels::PageBounds bounds;
};

Block* block_of(kernels::Page* page) {
  return reinterpret_cast<Block*>(page);
}
const Block* block_of(const kernels::Page* page) {
  return reinterpret_cast<const Block*>(page);
}

}  // namespace

struct PagePool::Impl {
  std::unique_ptr<kernels::PageMemory> memory;
  size_t region_bytes = 0;
  size_t unit_bytes = 0;  // of a block and its bounds
  std::unique_ptr<Block[]> blocks;
  size_t total = 0;
  mutable std::mutex mutex;
  std::vector<Block*> free;  // guarded by mutex
  size_t fresh = 0;          // blocks never handed out yet; guarded by mutex
  uint64_t copies = 0;       // guarded by mutex
};

PagePin::PagePin(PagePin&& other) noexcept : pool_(other.pool_), page_(other.page_) {
  other.page_ = nullptr;
}

PagePin& PagePin::operator=(PagePin&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = other.pool_;
    page_ = other.page_;
    other.page_ = nullptr;
  }
  return *this;
}

PagePin PagePin::share() const {
  if (page_) pool_->add_reference(page_);
  return PagePin(pool_, page_);
}

bool PagePin::exclusive() const {
  return page_ && pool_->sole_reference(page_);
}

void PagePin::release() {
  if (page_) pool_->drop_reference(page_);
  page_ = nullptr;
}

PagePool::PagePool(const kernels::KvShape& shape, std::unique_ptr<Impl> impl)
    : shape_(shape), impl_(std::move(impl)) {}

PagePool::~PagePool() {
  assert(impl_->free.size() == impl_->fresh && "a pin outlived its pool");
}

Result<std::unique_ptr<PagePool>> PagePool::create(const kernels::KvShape& shape, uint64_t cap_bytes,
                                                   size_t bounds_bytes,
                                                   std::unique_ptr<kernels::PageMemory> memory) {
  auto impl = std::make_unique<Impl>();
  const size_t block_bytes = shape.block_bytes();
  impl->unit_bytes = block_bytes + bounds_bytes;
  impl->total = block_bytes ? cap_bytes / impl->unit_bytes : 0;
  if (impl->total == 0) {
    return make_error(
        ErrorKind::kTooLarge,
        "a KV cap of {} bytes holds not one page block of this model ({} bytes for {} tokens): raise the cap",
        cap_bytes, impl->unit_bytes, kernels::kPageTokens);
  }
  impl->region_bytes = impl->total * impl->unit_bytes;
  RH_TRY(std::byte* const region, memory->reserve(impl->region_bytes));
  impl->memory = std::move(memory);
  impl->blocks = std::make_unique<Block[]>(impl->total);
  for (size_t i = 0; i < impl->total; ++i) {
    Block& block = impl->blocks[i];
    block.page.data = region + i * block_bytes;
    if (bounds_bytes == 0) continue;
    block.bounds.data = region + impl->total * block_bytes + i * bounds_bytes;
    block.page.bounds = &block.bounds;
  }
  return std::unique_ptr<PagePool>(new PagePool(shape, std::move(impl)));
}

PagePin PagePool::allocate() {
  std::lock_guard lock(impl_->mutex);
  Block* block = nullptr;
  if (!impl_->free.empty()) {
    block = impl_->free.back();
    impl_->free.pop_back();
  } else if (impl_->fresh < impl_->total) {
    block = &impl_->blocks[impl_->fresh++];
  } else {
    return PagePin();
  }
  block->page.count = 0;
  block->page.consecutive = true;
  block->page.positions.fill(0);
  block->bounds.slots = 0;
  block->references.store(1, std::memory_order_relaxed);
  return PagePin(this, &block->page);
}

PagePin PagePool::copy(const kernels::Page& source, int count) {
  PagePin pin = allocate();
  if (!pin) return pin;
  // Slots lie apart in K, so whole pages are copied; slots beyond `count` are never read.
  if (!impl_->memory->copy_within(source.data, pin->data, shape_.block_bytes()).ok()) return PagePin();
  pin->count = count;
  pin->consecutive = source.consecutive;
  pin->positions = source.positions;
  std::lock_guard lock(impl_->mutex);
  ++impl_->copies;
  return pin;
}

kernels::PageMemory& PagePool::memory() const {
  return *impl_->memory;
}

PagePoolStats PagePool::stats() const {
  std::lock_guard lock(impl_->mutex);
  PagePoolStats stats;
  stats.block_bytes = impl_->unit_bytes;
  stats.blocks_total = impl_->total;
  stats.blocks_used = impl_->fresh - impl_->free.size();
  stats.cap_bytes = impl_->region_bytes;
  stats.used_bytes = stats.blocks_used * stats.block_bytes;
  stats.copies = impl_->copies;
  return stats;
}

void PagePool::add_reference(kernels::Page* page) {
  block_of(page)->references.fetch_add(1, std::memory_order_relaxed);
}

void PagePool::drop_reference(kernels::Page* page) {
  Block* block = block_of(page);
  if (block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
#ifndef NDEBUG
  // Whoever still reads the block without a pin finds NaN in every float type.
  if (impl_->memory->host_addressable()) std::memset(block->page.data, 0xff, shape_.block_bytes());
#endif
  std::lock_guard lock(impl_->mutex);
  impl_->free.push_back(block);
}

bool PagePool::sole_reference(const kernels::Page* page) const {
  return block_of(page)->references.load(std::memory_order_acquire) == 1;
}

}  // namespace rhapsode::store
