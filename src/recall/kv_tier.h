// The KV of passages, ready to be read: in the pages that passes read, else in pinned memory of the host,
// else on disk, else made from text again.
//
// Pages loaded stay pinned here, least recently used out first, under a cap of bytes; the engine takes pages
// back through reclaim() when its requests need them. Where passes read the memory of a GPU, whatever is
// loaded or made stays in a second tier as well, pinned memory of the host, under the cap of its pool, from
// which it comes back at the speed of the bus. KV made from text is handed to `keep`, so that the next reader
// finds it on disk. A damaged extent is quarantined, counted and made again.
//
// What begin_load() has on its way belongs to the tier's pages only when it is there: until then others that
// want it bring it themselves.
//
// Load or make (load_or_make.h): with a tier of the host, hence a GPU, a batch's passages on disk are read by
// some threads, each of which also brings them up, while others of them are made from text, so that all are
// there soonest. That needs KV stored as pages have it, so that both give the same. Threads: load() by one
// thread at a time; reclaim(), drop() and the const functions by any. Cost: a hit costs nothing; host memory
// one copy; disk a read, a check and a copy a passage, on several threads; text its prefill.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/encoder.h"
#include "recall/load_or_make.h"
#include "recall/passage_pages.h"
#include "store/catalog.h"

namespace rhapsode::recall {

struct KvWanted {
  int64_t passage = 0;
  const PassageTokens* tokens = nullptr;
};

// The pages of one KvTier::begin_load(): by passage, in the order asked for.
class LoadedKv {
 public:
  LoadedKv() = default;
  LoadedKv(LoadedKv&&) noexcept = default;
  LoadedKv& operator=(LoadedKv&&) noexcept = default;

  std::vector<std::vector<store::PagePin>> pages;
  // Waits until all of them are there, if some were on their way. An error: these hold nothing. Any thread,
  // one at a time; before the tier's end.
  Status finish();

 private:
  friend class KvTier;
  struct Coming;
  struct CloseComing {
    void operator()(Coming* coming) const;
  };
  std::unique_ptr<Coming, CloseComing> coming_;
};

struct KvTierStats {
  uint64_t memory_hits = 0;  // in pages
  uint64_t ram_hits = 0;     // in the host's memory beside them
  uint64_t disk_hits = 0;
  uint64_t encoded = 0;  // made from text
  uint64_t outrun = 0;   // of those: stored, but this was faster
  uint64_t quarantined = 0;
  uint64_t bytes = 0;
  uint64_t ram_bytes = 0;
};

// What load() finds out for the store's sake. Any may be empty; reading goes on whatever they do.
struct KvUpkeep {
  std::function<void(std::span<const store::KvRecord> made)> keep;  // from text just now
  std::function<void(int64_t passage)> quarantine;                  // its extent is damaged
  std::function<void(int64_t passage)> outrun;  // it is made from text, although it is stored
};

struct KvTierOptions {
  kernels::KvType stored = kernels::KvType::kF16;
  store::PagePool* ram = nullptr;  // pages of the host; null: passes read the host's memory anyway
  int threads = 1;                 // that read the disk
};

class KvTier {
 public:
  KvTier(PassRunner& runner, Encoder& encoder, std::string fingerprint, const KvTierOptions& options)
      : runner_(runner), encoder_(encoder), fingerprint_(std::move(fingerprint)), options_(options) {}

  // Pins of each passage's pages, in the order asked for.
  Result<std::vector<std::vector<store::PagePin>>> load(const store::Catalog& catalog,
                                                        std::span<const KvWanted> wanted,
                                                        const KvUpkeep& upkeep);
  // The same; but those that come from the host's memory may be on their way when it returns, layer by layer
  // (PageMemory::begin_copies_in). Passes may read them at once; what they say counts when finish() was ok.
  Result<LoadedKv> begin_load(const store::Catalog& catalog, std::span<const KvWanted> wanted,
                              const KvUpkeep& upkeep);
  bool holds(int64_t passage) const;
  void drop(int64_t passage);
  void clear();
  // Lets go of pages that nobody reads until `blocks` are free; returns how many are.
  int reclaim(int blocks);
  void set_cap(uint64_t bytes);
  KvTierStats stats() const;
  // How fast reading and making were so far.
  KvRates& rates() { return rates_; }

 private:
  friend class LoadedKv;
  struct Loading;
  struct Stored;
  void share_resident(Loading& loading);
  Status take_pages(Loading& loading, std::span<const size_t> numbers, std::span<const int> counts);
  Status bring_from_ram(Loading& loading);
  Status bring_from_disk(Loading& loading);
  // Whether stored passages may be made from text instead.
  bool may_make() const;
  Status read_and_make(Loading& loading, Stored& stored);
  // Beginning with `some` of what is stored.
  Status make_some(Loading& loading, Stored& stored, LoadOrMake& choice, std::vector<size_t> some);
  void note_outrun(const Loading& loading, std::span<const size_t> numbers);
  // Reads one passage to the host's tier and brings it up.
  Status place(Loading& loading, size_t i, store::RecordStream& record);
  Status settle(Loading& loading, const Stored& stored);
  Status make_from_text(Loading& loading);
  Status make(Loading& loading, std::span<const size_t> numbers);
  Status keep(const Loading& loading, std::span<const size_t> numbers);
  Result<std::vector<std::byte>> to_extent(const Loading& loading, size_t i) const;
  // Exclusive pages of the host's tier; none when it is full of what is being read. Any thread.
  std::vector<store::PagePin> ram_pages(int count);
  void insert(int64_t passage, std::span<const store::PagePin> pages,
              std::span<const store::PagePin> ram_pages);
  Status settle(LoadedKv::Coming& coming);

  PassRunner& runner_;
  Encoder& encoder_;
  std::string fingerprint_;
  KvTierOptions options_;
  KvRates rates_;

  mutable std::mutex mutex_;
  PassagePages resident_;            // guarded by mutex_
  PassagePages ram_;                 // guarded by mutex_
  uint64_t cap_bytes_ = UINT64_MAX;  // guarded by mutex_
  KvTierStats stats_;                // guarded by mutex_
};

}  // namespace rhapsode::recall
