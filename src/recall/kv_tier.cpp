#include "recall/kv_tier.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/clock.h"
#include "base/parallel.h"
#include "store/host_pages.h"
#include "store/kv_codec.h"

namespace rhapsode::recall {

namespace {

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

// Copies on their way, with pins of both ends.
struct LoadedKv::Coming {
  KvTier& tier;
  std::vector<int64_t> passages;
  std::vector<std::vector<store::PagePin>> pages;  // [passages]
  std::vector<store::PagePin> from;
  std::unique_ptr<kernels::PageArrival> arrival;  // the first to go
  bool settled = false;
  Status status;
};

void LoadedKv::CloseComing::operator()(Coming* coming) const {
  delete coming;
}

Status LoadedKv::finish() {
  return coming_ ? coming_->tier.settle(*coming_) : Status();
}

Status KvTier::settle(LoadedKv::Coming& coming) {
  if (coming.settled) return coming.status;
  coming.settled = true;
  coming.status = coming.arrival->finish();
  RH_TRY_STATUS(coming.status);
  const auto is_dropped = [&](int64_t passage) {
    std::lock_guard lock(mutex_);
    return !ram_.holds(passage);  // pinned there, it would have stayed
  };
  for (size_t i = 0; i < coming.passages.size(); ++i) {
    if (!is_dropped(coming.passages[i])) insert(coming.passages[i], coming.pages[i], {});
  }
  coming.pages.clear();
  coming.from.clear();
  return {};
}

// One call of load(). A passage is missing while it has no pages.
struct KvTier::Loading {
  const store::Catalog& catalog;
  std::span<const KvWanted> wanted;
  const KvUpkeep& upkeep;
  std::vector<std::vector<store::PagePin>> pages;      // [wanted]
  std::vector<std::vector<store::PagePin>> ram_pages;  // [wanted] of the host's tier; may be empty
  std::vector<bool> stored;                            // [wanted] on disk, sound
  std::unique_ptr<LoadedKv::Coming, LoadedKv::CloseComing> coming;

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
    // One that cannot be had goes back first: the pool hands out what is let go of last, which is evicted.
    if (page && !options_.ram->memory().prepare({page->data, block_bytes}).ok()) page.release();
    if (!page) {
      std::lock_guard lock(mutex_);
      if (ram_.evict(count - static_cast<int>(pages.size()), /*unused_only=*/true) == 0) return {};
      continue;
    }
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
  RH_TRY(std::unique_ptr<kernels::PageArrival> arrival, store::begin_copy_pages(from, to));
  loading.coming.reset(new LoadedKv::Coming{*this, {}, {}, std::move(from), std::move(arrival), false, {}});
  for (const size_t i : found) {
    loading.coming->passages.push_back(loading.wanted[i].passage);
    loading.coming->pages.push_back(share_all(loading.pages[i]));
  }
  std::lock_guard lock(mutex_);
  stats_.ram_hits += found.size();
  return {};
}

// What of one call of load() lies on disk. [e]: one entry for each of them.
struct KvTier::Stored {
  std::vector<size_t> numbers;  // in Loading
  std::vector<store::KvExtent> extents;
  std::vector<StoredKv> sizes;
  enum class Fate : uint8_t { kNone, kRead, kMade };
  std::vector<Fate> fates;   // each written by who read or made it
  std::vector<Status> done;  // of reading
};

Status KvTier::bring_from_disk(Loading& loading) {
  Stored stored;
  for (const size_t i : loading.missing()) {
    RH_TRY(const std::optional<store::KvExtent> extent,
           loading.catalog.kv_extent(fingerprint_, loading.wanted[i].passage));
    if (!extent) continue;
    stored.numbers.push_back(i);
    stored.extents.push_back(*extent);
    loading.stored[i] = true;
  }
  if (stored.numbers.empty()) return {};
  std::vector<int> counts;
  for (const size_t i : stored.numbers) counts.push_back(pages_for(loading.tokens(i)));
  RH_TRY_STATUS(take_pages(loading, stored.numbers, counts));
  std::vector<bool> cached(stored.numbers.size(), false);
  if (may_make()) cached = loading.catalog.kv_in_page_cache(stored.extents);
  for (size_t e = 0; e < stored.numbers.size(); ++e) {
    stored.sizes.push_back({stored.extents[e].extent.bytes, loading.tokens(stored.numbers[e]), cached[e]});
  }
  stored.fates.resize(stored.numbers.size(), Stored::Fate::kNone);
  RH_TRY_STATUS(read_and_make(loading, stored));
  return settle(loading, stored);
}

Status KvTier::read_and_make(Loading& loading, Stored& stored) {
  LoadOrMake choice(rates_, stored.sizes, options_.threads, may_make());
  std::vector<int64_t> begin_ns(stored.numbers.size(), 0);
  store::Catalog::KvReading reading;
  reading.threads = options_.threads;
  reading.take = [&] {
    const size_t e = choice.next_to_load();
    if (e < begin_ns.size()) begin_ns[e] = now_ns();
    return e;
  };
  reading.use = [&](size_t e, store::RecordStream& record) -> Status {
    const Status placed = place(loading, stored.numbers[e], record);
    choice.loaded(e);
    RH_TRY_STATUS(placed);
    rates_.loaded(stored.sizes[e], begin_ns[e], now_ns());
    stored.fates[e] = Stored::Fate::kRead;
    return {};
  };
  // What is made first is settled before anybody reads: else a few quick reads could leave nothing to
  // measure.
  std::vector<size_t> first = choice.next_to_make();
  Status made;
  run_beside([&] { stored.done = loading.catalog.read_kv(stored.extents, reading); },
             [&] { made = make_some(loading, stored, choice, std::move(first)); });
  return made;
}

Status KvTier::make_some(Loading& loading, Stored& stored, LoadOrMake& choice, std::vector<size_t> some) {
  for (; !some.empty(); some = choice.next_to_make()) {
    std::vector<size_t> numbers;
    for (const size_t e : some) {
      stored.fates[e] = Stored::Fate::kMade;
      numbers.push_back(stored.numbers[e]);
      loading.pages[numbers.back()].clear();  // what is made comes with pages of its own
    }
    note_outrun(loading, numbers);
    const Status made = make(loading, numbers);
    if (made.ok()) continue;
    choice.stop();
    return made;
  }
  return {};
}

void KvTier::note_outrun(const Loading& loading, std::span<const size_t> numbers) {
  for (const size_t i : numbers) {
    if (loading.upkeep.outrun) loading.upkeep.outrun(loading.wanted[i].passage);
  }
  std::lock_guard lock(mutex_);
  stats_.outrun += numbers.size();
}

bool KvTier::may_make() const {
  return options_.ram != nullptr && options_.stored == runner_.kv_shape().type;
}

Status KvTier::place(Loading& loading, size_t i, store::RecordStream& record) {
  const int tokens = loading.tokens(i);
  loading.ram_pages[i] = ram_pages(static_cast<int>(loading.pages[i].size()));
  if (loading.ram_pages[i].empty()) return store::decode_pinned_kv(record, loading.pages[i], tokens);
  RH_TRY_STATUS(store::decode_pinned_kv(record, loading.ram_pages[i], tokens));
  return store::copy_pages(loading.ram_pages[i], loading.pages[i]);
}

Status KvTier::settle(Loading& loading, const Stored& stored) {
  for (size_t e = 0; e < stored.numbers.size(); ++e) {
    const size_t i = stored.numbers[e];
    if (stored.fates[e] == Stored::Fate::kMade) continue;
    if (stored.fates[e] == Stored::Fate::kRead) {
      insert(loading.wanted[i].passage, loading.pages[i], loading.ram_pages[i]);
      std::lock_guard lock(mutex_);
      ++stats_.disk_hits;
      continue;
    }
    loading.pages[i].clear();
    loading.ram_pages[i].clear();
    if (stored.done[e].ok()) {  // nobody took it
      note_outrun(loading, std::span(&i, 1));
      continue;
    }
    if (stored.done[e].error().kind != ErrorKind::kCorrupt) return stored.done[e].error();
    if (loading.upkeep.quarantine) loading.upkeep.quarantine(loading.wanted[i].passage);
    loading.stored[i] = false;
    std::lock_guard lock(mutex_);
    ++stats_.quarantined;
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
  RH_TRY_STATUS(make(loading, missing));
  return keep(loading, missing);
}

Status KvTier::make(Loading& loading, std::span<const size_t> numbers) {
  std::vector<PassageTokens> texts;
  int tokens = 0;
  for (const size_t i : numbers) {
    texts.push_back(*loading.wanted[i].tokens);
    tokens += loading.tokens(i);
  }
  const int64_t begin = now_ns();
  RH_TRY(std::vector<Encoded> encoded, encoder_.encode(texts, /*index_only=*/false));
  std::vector<store::PagePin> from, to;
  for (size_t n = 0; n < numbers.size(); ++n) {
    const size_t i = numbers[n];
    loading.pages[i] = std::move(encoded[n].pages);
    loading.ram_pages[i] = ram_pages(static_cast<int>(loading.pages[i].size()));
    if (loading.ram_pages[i].empty()) continue;
    append_shared(from, loading.pages[i]);
    append_shared(to, loading.ram_pages[i]);
  }
  RH_TRY_STATUS(store::copy_pages(from, to));
  // A single one measures overheads.
  if (numbers.size() > 1) rates_.made(tokens, seconds_since(begin));
  for (const size_t i : numbers) insert(loading.wanted[i].passage, loading.pages[i], loading.ram_pages[i]);
  std::lock_guard lock(mutex_);
  stats_.encoded += numbers.size();
  return {};
}

Status KvTier::keep(const Loading& loading, std::span<const size_t> numbers) {
  if (!loading.upkeep.keep) return {};
  std::vector<std::vector<std::byte>> extents(numbers.size());
  std::vector<store::KvRecord> made;
  for (size_t n = 0; n < numbers.size(); ++n) {
    const size_t i = numbers[n];
    if (loading.stored[i]) continue;
    RH_TRY(extents[n], to_extent(loading, i));
    made.push_back({loading.wanted[i].passage, extents[n]});
  }
  if (!made.empty()) loading.upkeep.keep(made);
  return {};
}

Result<LoadedKv> KvTier::begin_load(const store::Catalog& catalog, std::span<const KvWanted> wanted,
                                    const KvUpkeep& upkeep) {
  Loading loading{catalog, wanted, upkeep, {}, {}, std::vector<bool>(wanted.size(), false), {}};
  loading.pages.resize(wanted.size());
  loading.ram_pages.resize(wanted.size());
  share_resident(loading);
  RH_TRY_STATUS(bring_from_ram(loading));
  RH_TRY_STATUS(bring_from_disk(loading));
  RH_TRY_STATUS(make_from_text(loading));
  LoadedKv loaded;
  loaded.pages = std::move(loading.pages);
  loaded.coming_ = std::move(loading.coming);
  return loaded;
}

Result<std::vector<std::vector<store::PagePin>>> KvTier::load(const store::Catalog& catalog,
                                                              std::span<const KvWanted> wanted,
                                                              const KvUpkeep& upkeep) {
  RH_TRY(LoadedKv loaded, begin_load(catalog, wanted, upkeep));
  RH_TRY_STATUS(loaded.finish());
  return std::move(loaded.pages);
}

}  // namespace rhapsode::recall
