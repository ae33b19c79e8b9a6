#include "recall/kv_tier.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/clock.h"
#include "store/host_pages.h"
#include "store/kv_codec.h"

namespace rhapsode::recall {

namespace {

constexpr double kLatestShare = 0.25;  // of a measurement in a rate
constexpr double kClearlyFaster = 0.8;
// Smaller batches measure overheads, not rates.
constexpr size_t kSmallestBatch = 8;
// Of a batch, passages that go the slower way: enough for a pass that is not all overhead.
constexpr size_t kSampleOneIn = 6;
constexpr size_t kLeastSamples = 2;
size_t samples_of(size_t batch) {
  return std::max(kLeastSamples, batch / kSampleOneIn);
}

double seconds_since(int64_t begin_ns) {
  return static_cast<double>(now_ns() - begin_ns) * 1e-9;
}

std::vector<kernels::Page*> pointers(std::span<const store::PagePin> pins) {
  std::vector<kernels::Page*> pages;
  for (const store::PagePin& pin : pins) pages.push_back(pin.get());
  return pages;
}

void append_shared(std::vector<store::PagePin>& all, std::span<const store::PagePin> pages) {
  for (const store::PagePin& page : pages) all.push_back(page.share());
}

}  // namespace

void MeasuredRate::add(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return;
  const double rate = amount / seconds;
  rate_ = known() ? rate_ + kLatestShare * (rate - rate_) : rate;
}

// One call of load(). A passage is missing while it has no pages.
struct KvTier::Loading {
  const store::Catalog& catalog;
  std::span<const KvWanted> wanted;
  const KvUpkeep& upkeep;
  std::vector<std::vector<store::PagePin>> pages;      // [wanted]
  std::vector<std::vector<store::PagePin>> ram_pages;  // [wanted] of the host's tier; may be empty
  std::vector<bool> stored;                            // [wanted] on disk, sound

  int tokens(size_t i) const { return static_cast<int>(wanted[i].tokens->tokens.size()); }
  std::vector<size_t> missing() const {
    std::vector<size_t> numbers;
    for (size_t i = 0; i < pages.size(); ++i) {
      if (pages[i].empty()) numbers.push_back(i);
    }
    return numbers;
  }
};

void KvTier::insert(int64_t passage, std::span<const store::PagePin> pages,
                    std::span<const store::PagePin> ram_pages) {
  std::lock_guard lock(mutex_);
  if (!ram_pages.empty()) ram_.insert(passage, ram_pages);
  if (resident_.holds(passage)) return;
  resident_.insert(passage, pages);
  const uint64_t block_bytes = runner_.kv_shape().block_bytes();
  if (resident_.blocks() * block_bytes > cap_bytes_) {
    resident_.evict(static_cast<int>(resident_.blocks() - cap_bytes_ / block_bytes), /*unused_only=*/false);
  }
}

int KvTier::reclaim(int blocks) {
  std::lock_guard lock(mutex_);
  return resident_.evict(blocks, /*unused_only=*/true);
}

void KvTier::set_cap(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  cap_bytes_ = bytes;
}

bool KvTier::holds(int64_t passage) const {
  std::lock_guard lock(mutex_);
  return resident_.holds(passage) || ram_.holds(passage);
}

void KvTier::drop(int64_t passage) {
  std::lock_guard lock(mutex_);
  resident_.drop(passage);
  ram_.drop(passage);
}

void KvTier::clear() {
  std::lock_guard lock(mutex_);
  resident_.clear();
  ram_.clear();
}

KvTierStats KvTier::stats() const {
  std::lock_guard lock(mutex_);
  KvTierStats stats = stats_;
  stats.bytes = resident_.blocks() * runner_.kv_shape().block_bytes();
  stats.ram_bytes = ram_.blocks() * runner_.kv_shape().block_bytes();
  return stats;
}

std::vector<store::PagePin> KvTier::ram_pages(int count) {
  std::vector<store::PagePin> pages;
  if (options_.ram == nullptr) return pages;
  const size_t block_bytes = options_.ram->shape().block_bytes();
  while (static_cast<int>(pages.size()) < count) {
    store::PagePin page = options_.ram->allocate();
    if (!page) {
      std::lock_guard lock(mutex_);
      if (ram_.evict(count - static_cast<int>(pages.size()), /*unused_only=*/true) == 0) return {};
      continue;
    }
    if (!options_.ram->memory().prepare({page->data, block_bytes}).ok()) return {};
    pages.push_back(std::move(page));
  }
  return pages;
}

void KvTier::share_resident(Loading& loading) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < loading.wanted.size(); ++i) {
    loading.pages[i] = resident_.share(loading.wanted[i].passage);
    if (!loading.pages[i].empty()) ++stats_.memory_hits;
  }
}

// All at once: a question waits for the engine's thread each time.
Status KvTier::take_pages(Loading& loading, std::span<const size_t> numbers, std::span<const int> counts) {
  RH_TRY(std::vector<store::PagePin> pages, runner_.take_pages(counts));
  auto next = std::make_move_iterator(pages.begin());
  for (size_t n = 0; n < numbers.size(); ++n) {
    loading.pages[numbers[n]].assign(next, next + counts[n]);
    next += counts[n];
  }
  return {};
}

Status KvTier::bring_from_ram(Loading& loading) {
  std::vector<size_t> found;
  std::vector<int> counts;
  std::vector<store::PagePin> from, to;
  for (const size_t i : loading.missing()) {
    std::vector<store::PagePin> ram;
    {
      std::lock_guard lock(mutex_);
      ram = ram_.share(loading.wanted[i].passage);
    }
    if (ram.empty()) continue;
    counts.push_back(static_cast<int>(ram.size()));
    append_shared(from, ram);
    found.push_back(i);
  }
  if (found.empty()) return {};
  RH_TRY_STATUS(take_pages(loading, found, counts));
  for (const size_t i : found) append_shared(to, loading.pages[i]);
  RH_TRY_STATUS(store::copy_pages(from, to));
  for (const size_t i : found) insert(loading.wanted[i].passage, loading.pages[i], {});
  std::lock_guard lock(mutex_);
  stats_.ram_hits += found.size();
  return {};
}

std::vector<bool> KvTier::outrun(const Loading& loading, std::span<const size_t> on_disk,
                                 std::span<const store::KvExtent> extents) const {
  std::vector<bool> by_text(on_disk.size(), false);
  const bool alike = options_.stored == runner_.kv_shape().type;
  if (options_.ram == nullptr || !alike || on_disk.size() < kSmallestBatch) return by_text;
  double bytes = 0, tokens = 0;
  for (size_t e = 0; e < on_disk.size(); ++e) {
    bytes += static_cast<double>(extents[e].extent.bytes);
    tokens += loading.tokens(on_disk[e]);
  }
  const bool known = disk_.known() && text_.known();
  const bool text_wins = known && text_.seconds(tokens) < kClearlyFaster * disk_.seconds(bytes);
  const size_t samples = text_wins ? kLeastSamples : samples_of(on_disk.size());
  for (size_t e = 0; e < on_disk.size(); ++e) by_text[e] = (e < samples) != text_wins;
  // Of what is known to be slower nothing more needs to be known.
  if (known && !text_wins) by_text.assign(on_disk.size(), false);
  return by_text;
}

Status KvTier::bring_from_disk(Loading& loading) {
  std::vector<size_t> on_disk;
  std::vector<store::KvExtent> extents;
  for (const size_t i : loading.missing()) {
    RH_TRY(const std::optional<store::KvExtent> extent,
           loading.catalog.kv_extent(fingerprint_, loading.wanted[i].passage));
    if (!extent) continue;
    on_disk.push_back(i);
    extents.push_back(*extent);
    loading.stored[i] = true;
  }
  const std::vector<bool> by_text = outrun(loading, on_disk, extents);
  size_t kept = 0;
  for (size_t e = 0; e < on_disk.size(); ++e) {
    if (by_text[e]) {
      if (loading.upkeep.outrun) loading.upkeep.outrun(loading.wanted[on_disk[e]].passage);
      std::lock_guard lock(mutex_);
      ++stats_.outrun;
      continue;
    }
    on_disk[kept] = on_disk[e];
    extents[kept++] = extents[e];
  }
  if (kept == 0) return {};
  const int64_t begin = now_ns();
  RH_TRY_STATUS(read_extents(loading, std::span(on_disk).first(kept), std::span(extents).first(kept)));
  double bytes = 0;
  for (size_t e = 0; e < kept; ++e) bytes += static_cast<double>(extents[e].extent.bytes);
  if (kept >= kLeastSamples) disk_.add(bytes, seconds_since(begin));
  return {};
}

Status KvTier::read_extents(Loading& loading, std::span<const size_t> numbers,
                            std::span<const store::KvExtent> extents) {
  const kernels::KvShape& shape = runner_.kv_shape();
  std::vector<int> counts;
  for (const size_t i : numbers) counts.push_back(pages_for(loading.tokens(i)));
  RH_TRY_STATUS(take_pages(loading, numbers, counts));
  const std::vector<Status> done =
      loading.catalog.read_kv(extents, options_.threads, [&](size_t e, std::span<const std::byte> bytes) {
        const size_t i = numbers[e];
        const int tokens = loading.tokens(i);
        // Here, since pinning takes as long as reading.
        loading.ram_pages[i] = ram_pages(static_cast<int>(loading.pages[i].size()));
        if (loading.ram_pages[i].empty()) return store::decode_pinned_kv(bytes, loading.pages[i], tokens);
        return store::decode_kv(shape, bytes, pointers(loading.ram_pages[i]), tokens);
      });
  std::vector<store::PagePin> from, to;
  for (size_t e = 0; e < numbers.size(); ++e) {
    const size_t i = numbers[e];
    if (done[e].ok()) {
      if (loading.ram_pages[i].empty()) continue;
      append_shared(from, loading.ram_pages[i]);
      append_shared(to, loading.pages[i]);
      continue;
    }
    if (done[e].error().kind != ErrorKind::kCorrupt) return done[e].error();
    if (loading.upkeep.quarantine) loading.upkeep.quarantine(loading.wanted[i].passage);
    loading.stored[i] = false;
    loading.pages[i].clear();
    loading.ram_pages[i].clear();
    std::lock_guard lock(mutex_);
    ++stats_.quarantined;
  }
  RH_TRY_STATUS(store::copy_pages(from, to));
  for (const size_t i : numbers) {
    if (loading.pages[i].empty()) continue;
    insert(loading.wanted[i].passage, loading.pages[i], loading.ram_pages[i]);
    std::lock_guard lock(mutex_);
    ++stats_.disk_hits;
  }
  return {};
}

Result<std::vector<std::byte>> KvTier::to_extent(const Loading& loading, size_t i) const {
  if (loading.ram_pages[i].empty()) {
    return store::encode_pinned_kv(loading.pages[i], options_.stored, loading.tokens(i));
  }
  const std::vector<kernels::Page*> pages = pointers(loading.ram_pages[i]);
  const std::vector<const kernels::Page*> read(pages.begin(), pages.end());
  return store::encode_kv(runner_.kv_shape(), options_.stored, read, loading.tokens(i));
}

Status KvTier::make_from_text(Loading& loading) {
  const std::vector<size_t> missing = loading.missing();
  if (missing.empty()) return {};
  std::vector<PassageTokens> texts;
  for (const size_t i : missing) texts.push_back(*loading.wanted[i].tokens);
  const int64_t begin = now_ns();
  RH_TRY(std::vector<Encoded> encoded, encoder_.encode(texts, /*index_only=*/false));
  std::vector<store::PagePin> from, to;
  for (size_t m = 0; m < missing.size(); ++m) {
    const size_t i = missing[m];
    loading.pages[i] = std::move(encoded[m].pages);
    loading.ram_pages[i] = ram_pages(static_cast<int>(loading.pages[i].size()));
    if (loading.ram_pages[i].empty()) continue;
    append_shared(from, loading.pages[i]);
    append_shared(to, loading.ram_pages[i]);
  }
  RH_TRY_STATUS(store::copy_pages(from, to));
  double tokens = 0;
  for (const size_t i : missing) tokens += loading.tokens(i);
  if (missing.size() >= kLeastSamples) text_.add(tokens, seconds_since(begin));
  std::vector<std::vector<std::byte>> extents(missing.size());
  std::vector<store::KvRecord> made;
  for (size_t m = 0; m < missing.size(); ++m) {
    const size_t i = missing[m];
    insert(loading.wanted[i].passage, loading.pages[i], loading.ram_pages[i]);
    if (!loading.upkeep.keep || loading.stored[i]) continue;
    RH_TRY(extents[m], to_extent(loading, i));
    made.push_back({loading.wanted[i].passage, extents[m]});
  }
  if (!made.empty()) loading.upkeep.keep(made);
  std::lock_guard lock(mutex_);
  stats_.encoded += missing.size();
  return {};
}

Result<std::vector<std::vector<store::PagePin>>> KvTier::load(const store::Catalog& catalog,
                                                              std::span<const KvWanted> wanted,
                                                              const KvUpkeep& upkeep) {
  Loading loading{catalog, wanted, upkeep, {}, {}, std::vector<bool>(wanted.size(), false)};
  loading.pages.resize(wanted.size());
  loading.ram_pages.resize(wanted.size());
  share_resident(loading);
  RH_TRY_STATUS(bring_from_ram(loading));
  RH_TRY_STATUS(bring_from_disk(loading));
  RH_TRY_STATUS(make_from_text(loading));
  return std::move(loading.pages);
}

}  // namespace rhapsode::recall
