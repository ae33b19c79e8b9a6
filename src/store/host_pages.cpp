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

void describe_alike(const kernels::Page& from, kernels::Page& to) {
  to.count = from.count;
  to.consecutive = from.consecutive;
  to.positions = from.positions;
}

namespace {

std::vector<kernels::PageMemory::CopyIn> copies_in(std::span<const PagePin> from, std::span<const PagePin> to,
                                                   size_t bytes) {
  std::vector<kernels::PageMemory::CopyIn> copies;
  copies.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) copies.push_back({to[i]->data, std::span(from[i]->data, bytes)});
  return copies;
}

}  // namespace

Result<std::unique_ptr<kernels::PageArrival>> begin_copy_pages(std::span<const PagePin> from,
                                                               std::span<const PagePin> to) {
  if (from.empty()) return std::make_unique<kernels::PageArrival>();
  const PagePool& target = to.front().pool();
  RH_TRY(std::unique_ptr<kernels::PageArrival> arrival,
         target.memory().begin_copies_in(copies_in(from, to, target.shape().block_bytes())));
  for (size_t i = 0; i < from.size(); ++i) {
    describe_alike(*from[i].get(), *to[i].get());
    to[i]->arrival = arrival->number();
  }
  return arrival;
}

Status copy_pages(std::span<const PagePin> from, std::span<const PagePin> to) {
  if (from.empty()) return {};
  const PagePool& source = from.front().pool();
  const PagePool& target = to.front().pool();
  const size_t bytes = target.shape().block_bytes();
  Status copied;
  if (&source == &target) {
    std::vector<kernels::PageMemory::CopyWithin> copies;
    for (size_t i = 0; i < from.size(); ++i) copies.push_back({from[i]->data, to[i]->data, bytes});
    copied = source.memory().copy_all_within(copies);
  } else if (source.memory().host_addressable()) {
    copied = target.memory().copy_all_in(copies_in(from, to, bytes));
  } else {
    std::vector<kernels::PageMemory::CopyOut> copies;
    for (size_t i = 0; i < from.size(); ++i) copies.push_back({from[i]->data, std::span(to[i]->data, bytes)});
    copied = source.memory().copy_all_out(copies);
  }
  RH_TRY_STATUS(copied);
  for (size_t i = 0; i < from.size(); ++i) describe_alike(*from[i].get(), *to[i].get());
  return {};
}

Result<HostPages> HostPages::reading(std::span<const PagePin> pins) {
  HostPages pages(pins);
  if (pages.copies_.empty()) return pages;
  const PagePool& pool = pins.front().pool();
  std::vector<kernels::PageMemory::CopyOut> copies;
  for (size_t i = 0; i < pages.copies_.size(); ++i) {
    copies.push_back({pins[i]->data, std::span(pages.copies_[i].data, pool.shape().block_bytes())});
  }
  RH_TRY_STATUS(pool.memory().copy_all_out(copies));
  return pages;
}

HostPages HostPages::writing(std::span<const PagePin> pins) {
  return HostPages(pins);
}

Status HostPages::write_back() {
  if (copies_.empty()) return {};
  const PagePool& pool = pins_.front().pool();
  std::vector<kernels::PageMemory::CopyIn> copies;
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies.push_back({pins_[i]->data, std::span(copies_[i].data, pool.shape().block_bytes())});
  }
  RH_TRY_STATUS(pool.memory().copy_all_in(copies));
  for (size_t i = 0; i < copies_.size(); ++i) describe_alike(copies_[i], *pins_[i].get());
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

Status decode_pinned_kv(RecordStream& record, std::span<const PagePin> pins, int tokens) {
  if (pins.empty()) return make_error(ErrorKind::kInvalidArgument, "KV cannot be decoded to no pages");
  HostPages host = HostPages::writing(pins);
  const KvSource source = [&](size_t bytes) { return record.next(bytes); };
  const Status decoded = decode_kv(pins.front().pool().shape(), source, record.bytes(), host.pages(), tokens);
  const Status sound = record.finish();
  if (!sound.ok()) {  // damage comes first: it may look like anything else
    for (kernels::Page* page : host.pages()) page->count = 0;
    return sound;
  }
  RH_TRY_STATUS(decoded);
  return host.write_back();
}

}  // namespace rhapsode::store
