#include "store/page_pool.h"

#include <algorithm>
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

// The blocks of one device.
struct Region {
  std::vector<Block*> free;
  size_t begin = 0;
  size_t fresh = 0;  // blocks from here on were never handed out
  size_t end = 0;

  size_t room() const { return free.size() + end - fresh; }
  Block* take(Block* blocks) {
    if (free.empty()) return fresh < end ? &blocks[fresh++] : nullptr;
    Block* block = free.back();
    free.pop_back();
    return block;
  }
};

}  // namespace

struct PagePool::Impl {
  std::unique_ptr<kernels::PageMemory> memory;
  size_t unit_bytes = 0;  // of a block and its bounds
  std::unique_ptr<Block[]> blocks;
  size_t total = 0;
  mutable std::mutex mutex;
  std::vector<Region> regions;  // [devices]; guarded by mutex
  uint64_t copies = 0;          // guarded by mutex

  size_t room() const {
    size_t sum = 0;
    for (const Region& region : regions) sum += region.room();
    return sum;
  }
  size_t emptiest() const {
    const auto fuller = [](const Region& a, const Region& b) { return a.room() < b.room(); };
    return static_cast<size_t>(std::max_element(regions.begin(), regions.end(), fuller) - regions.begin());
  }
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
  assert(impl_->room() == impl_->total && "a pin outlived its pool");
}

Result<std::unique_ptr<PagePool>> PagePool::create(const kernels::KvShape& shape, uint64_t cap_bytes,
                                                   size_t bounds_bytes,
                                                   std::unique_ptr<kernels::PageMemory> memory) {
  auto impl = std::make_unique<Impl>();
  const size_t block_bytes = shape.block_bytes();
  impl->unit_bytes = block_bytes + bounds_bytes;
  const auto devices = static_cast<size_t>(memory->devices());
  const size_t blocks = block_bytes ? cap_bytes / impl->unit_bytes / devices : 0;  // of each device
  impl->total = blocks * devices;
  if (impl->total == 0) {
    return make_error(ErrorKind::kTooLarge,
                      "a KV cap of {} bytes holds not one page block of this model ({} bytes for {} "
                      "tokens){}: raise the cap",
                      cap_bytes, impl->unit_bytes, kernels::kPageTokens,
                      devices > 1 ? " on every device" : "");
  }
  RH_TRY(const std::vector<std::byte*> regions, memory->reserve_each(blocks * impl->unit_bytes));
  impl->memory = std::move(memory);
  impl->memory->prepare_ahead(block_bytes);
  impl->blocks = std::make_unique<Block[]>(impl->total);
  for (size_t device = 0; device < devices; ++device) {
    const size_t begin = device * blocks;
    impl->regions.push_back({{}, begin, begin, begin + blocks});
    for (size_t i = 0; i < blocks; ++i) {
      Block& block = impl->blocks[begin + i];
      block.page.device = static_cast<int32_t>(device);
      block.page.data = regions[device] + i * block_bytes;
      if (bounds_bytes == 0) continue;
      block.bounds.data = regions[device] + blocks * block_bytes + i * bounds_bytes;
      block.page.bounds = &block.bounds;
    }
  }
  return std::unique_ptr<PagePool>(new PagePool(shape, std::move(impl)));
}

PagePin PagePool::allocate(int device) {
  std::lock_guard lock(impl_->mutex);
  Block* block = impl_->regions[static_cast<size_t>(device)].take(impl_->blocks.get());
  if (!block) block = impl_->regions[impl_->emptiest()].take(impl_->blocks.get());
  if (!block) return PagePin();
  block->page.count = 0;
  block->page.consecutive = true;
  block->page.positions.fill(0);
  block->page.arrival = 0;
  block->bounds.slots = 0;
  block->references.store(1, std::memory_order_relaxed);
  return PagePin(this, &block->page);
}

int PagePool::emptiest() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int>(impl_->emptiest());
}

PagePin PagePool::copy(const kernels::Page& source, int count) {
  PagePin pin = allocate(source.device);
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
  stats.blocks_used = impl_->total - impl_->room();
  stats.cap_bytes = impl_->total * impl_->unit_bytes;
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
  impl_->regions[static_cast<size_t>(block->page.device)].free.push_back(block);
}

bool PagePool::sole_reference(const kernels::Page* page) const {
  return block_of(page)->references.load(std::memory_order_acquire) == 1;
}

}  // namespace rhapsode::store
