#include "store/host_pages.h"

#include "store/kv_codec.h"

namespace rhapsode::store {

HostPages::HostPages(std::span<const PagePin> pins) : pins_(pins) {
  if (pins.empty()) return;
  const bool direct = pins.front().pool().memory().host_addressable();
  const size_t block_bytes = pins.front().pool().shape().block_bytes();
  if (!direct) {
    bytes_.resize(pins.size() * block_bytes);
    copies_.resize(pins.size());
  }
  for (size_t i = 0; i < pins.size(); ++i) {
    if (!direct) {
      copies_[i] = *pins[i].get();
      copies_[i].data = bytes_.data() + i * block_bytes;
    }
    pages_.push_back(direct ? pins[i].get() : &copies_[i]);
  }
}

Result<HostPages> HostPages::reading(std::span<const PagePin> pins) {
  HostPages pages(pins);
  for (size_t i = 0; i < pages.copies_.size(); ++i) {
    const PagePool& pool = pins[i].pool();
    RH_TRY_STATUS(
        pool.memory().copy_out(pins[i]->data, std::span(pages.copies_[i].data, pool.shape().block_bytes())));
  }
  return pages;
}

HostPages HostPages::writing(std::span<const PagePin> pins) {
  return HostPages(pins);
}

Status HostPages::write_back() {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const PagePool& pool = pins_[i].pool();
    kernels::Page& page = *pins_[i].get();
    RH_TRY_STATUS(pool.memory().copy_in(page.data, std::span(copies_[i].data, pool.shape().block_bytes())));
    page.count = copies_[i].count;
    page.consecutive = copies_[i].consecutive;
    page.positions = copies_[i].positions;
  }
  return {};
}

Result<std::vector<std::byte>> encode_pinned_kv(std::span<const PagePin> pins, kernels::KvType stored,
                                                int tokens) {
  if (pins.empty()) return make_error(ErrorKind::kInvalidArgument, "KV of no pages cannot be encoded");
  RH_TRY(const HostPages host, HostPages::reading(pins));
  const std::vector<const kernels::Page*> pages(host.pages().begin(), host.pages().end());
  return encode_kv(pins.front().pool().shape(), stored, pages, tokens);
}

Status decode_pinned_kv(std::span<const std::byte> extent, std::span<const PagePin> pins, int tokens) {
  if (pins.empty()) return make_error(ErrorKind::kInvalidArgument, "KV cannot be decoded to no pages");
  HostPages host = HostPages::writing(pins);
  RH_TRY_STATUS(decode_kv(pins.front().pool().shape(), extent, host.pages(), tokens));
  return host.write_back();
}

}  // namespace rhapsode::store
