// Pinned pages as the host can read and write them, wherever their blocks lie.
//
// Blocks in host memory are handed out as they are; of blocks in a device's memory there are copies, made by
// reading() and carried back by write_back(). Ownership: refers to the pins, which outlive it. Threads: one
// at a time. Errors: those of PageMemory. Cost: nothing on the host; on a device one copy a block and
// direction, all of them on the way at once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/page.h"
#include "kernels/page_memory.h"
#include "store/page_pool.h"
#include "store/segment_file.h"

namespace rhapsode::store {

class HostPages {
 public:
  // With what the blocks hold.
  static Result<HostPages> reading(std::span<const PagePin> pins);
  // With undefined bytes, to be filled; every byte of a page goes back.
  static HostPages writing(std::span<const PagePin> pins);

  std::span<kernels::Page* const> pages() const { return pages_; }
  Status write_back();

 private:
  explicit HostPages(std::span<const PagePin> pins);

  std::span<const PagePin> pins_;
  std::vector<std::byte> bytes_;       // empty on the host
  std::vector<kernels::Page> copies_;  // likewise
  std::vector<kernels::Page*> pages_;
};

// Counts and positions of a page whose block holds what another's does.
void describe_alike(const kernels::Page& from, kernels::Page& to);

// Blocks from one pool to as many of another of the same shape, of which one lies on the host.
Status copy_pages(std::span<const PagePin> from, std::span<const PagePin> to);
// Likewise from the host to a device, from where passes may read them at once (PageMemory::begin_copies_in).
// Both stay pinned until it is finished.
Result<std::unique_ptr<kernels::PageArrival>> begin_copy_pages(std::span<const PagePin> from,
                                                               std::span<const PagePin> to);

// encode_kv() and decode_kv() (store/kv_codec.h) of pinned pages.
Result<std::vector<std::byte>> encode_pinned_kv(std::span<const PagePin> pins, kernels::KvType stored,
                                                int tokens);
Status decode_pinned_kv(std::span<const std::byte> extent, std::span<const PagePin> pins, int tokens);
// Of a record, which is sound or the pages hold nothing; ends with it.
Status decode_pinned_kv(RecordStream& record, std::span<const PagePin> pins, int tokens);

}  // namespace rhapsode::store
