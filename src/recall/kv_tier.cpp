#include "recall/kv_tier.h"

#include <algorithm>

#include "store/host_pages.h"

namespace rhapsode::recall {

namespace {

std::vector<store::PagePin> share_all(std::span<const store::PagePin> pages) {
  std::vector<store::PagePin> shared;
  shared.reserve(pages.size());
  for (const store::PagePin& page : pages) shared.push_back(page.share());
  return shared;
}

}  // namespace

std::vector<store::PagePin> KvTier::share(int64_t passage) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(passage);
  if (found == entries_.end()) return {};
  recency_.splice(recency_.begin(), recency_, found->second.recency);
  ++stats_.memory_hits;
  return share_all(found->second.pages);
}

void KvTier::insert(int64_t passage, std::span<const store::PagePin> pages) {
  std::lock_guard lock(mutex_);
  if (entries_.contains(passage)) return;
  recency_.push_front(passage);
  entries_.emplace(passage, Entry{share_all(pages), recency_.begin()});
  blocks_ += pages.size();
  const uint64_t block_bytes = runner_.kv_shape().block_bytes();
  if (blocks_ * block_bytes > cap_bytes_) {
    evict_locked(static_cast<int>(blocks_ - cap_bytes_ / block_bytes), /*unused_only=*/false);
  }
}

// Dropping a pin that a request still shares frees its memory later, when that request ends.
int KvTier::evict_locked(int blocks, bool unused_only) {
  int freed = 0;
  for (auto oldest = recency_.end(); freed < blocks && oldest != recency_.begin();) {
    --oldest;
    Entry& entry = entries_.at(*oldest);
    const bool unused = std::all_of(entry.pages.begin(), entry.pages.end(),
                                    [](const store::PagePin& page) { return page.exclusive(); });
    if (unused_only && !unused) continue;
    freed += static_cast<int>(entry.pages.size());
    blocks_ -= entry.pages.size();
    entries_.erase(*oldest);
    oldest = recency_.erase(oldest);
  }
  return freed;
}

int KvTier::reclaim(int blocks) {
  std::lock_guard lock(mutex_);
  return evict_locked(blocks, /*unused_only=*/true);
}

void KvTier::set_cap(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  cap_bytes_ = bytes;
}

bool KvTier::holds(int64_t passage) const {
  std::lock_guard lock(mutex_);
  return entries_.contains(passage);
}

void KvTier::drop(int64_t passage) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(passage);
  if (found == entries_.end()) return;
  blocks_ -= found->second.pages.size();
  recency_.erase(found->second.recency);
  entries_.erase(found);
}

void KvTier::clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  recency_.clear();
  blocks_ = 0;
}

KvTierStats KvTier::stats() const {
  std::lock_guard lock(mutex_);
  KvTierStats stats = stats_;
  stats.bytes = blocks_ * runner_.kv_shape().block_bytes();
  return stats;
}

Result<std::vector<store::PagePin>> KvTier::from_disk(const store::Catalog& catalog, const KvWanted& wanted,
                                                      const KvUpkeep& upkeep) {
  RH_TRY(const std::optional<store::KvExtent> extent, catalog.kv_extent(fingerprint_, wanted.passage));
  if (!extent) return std::vector<store::PagePin>{};
  const int tokens = static_cast<int>(wanted.tokens->tokens.size());
  std::vector<std::byte> bytes(extent->extent.bytes);
  RH_TRY(std::vector<store::PagePin> pages, runner_.take_pages(pages_for(tokens)));
  Status read = catalog.read_kv(*extent, bytes);
  if (read.ok()) read = store::decode_pinned_kv(bytes, pages, tokens);
  if (read.ok()) return pages;
  if (read.error().kind != ErrorKind::kCorrupt) return read.error();
  if (upkeep.quarantine) upkeep.quarantine(wanted.passage);
  std::lock_guard lock(mutex_);
  ++stats_.quarantined;
  return std::vector<store::PagePin>{};
}

Result<std::vector<std::vector<store::PagePin>>> KvTier::load(const store::Catalog& catalog,
                                                              std::span<const KvWanted> wanted,
                                                              const KvUpkeep& upkeep) {
  std::vector<std::vector<store::PagePin>> loaded(wanted.size());
  std::vector<size_t> missing;
  for (size_t i = 0; i < wanted.size(); ++i) {
    loaded[i] = share(wanted[i].passage);
    if (!loaded[i].empty()) continue;
    RH_TRY(loaded[i], from_disk(catalog, wanted[i], upkeep));
    if (loaded[i].empty()) {
      missing.push_back(i);
      continue;
    }
    insert(wanted[i].passage, loaded[i]);
    std::lock_guard lock(mutex_);
    ++stats_.disk_hits;
  }
  if (missing.empty()) return loaded;

  std::vector<PassageTokens> texts;
  for (size_t index : missing) texts.push_back(*wanted[index].tokens);
  RH_TRY(std::vector<Encoded> encoded, encoder_.encode(texts, /*index_only=*/false));
  std::vector<std::vector<std::byte>> extents(missing.size());
  std::vector<store::KvRecord> made;
  for (size_t i = 0; i < missing.size(); ++i) {
    const int64_t passage = wanted[missing[i]].passage;
    loaded[missing[i]] = std::move(encoded[i].pages);
    insert(passage, loaded[missing[i]]);
    if (!upkeep.keep) continue;
    RH_TRY(extents[i],
           store::encode_pinned_kv(loaded[missing[i]], stored_, static_cast<int>(texts[i].tokens.size())));
    made.push_back({passage, extents[i]});
  }
  if (upkeep.keep) upkeep.keep(made);
  std::lock_guard lock(mutex_);
  stats_.encoded += missing.size();
  return loaded;
}

}  // namespace rhapsode::recall
