// The KV of passages, ready to be read: in memory, else from disk, else made from text again.
//
// Pages loaded stay pinned here, least recently used out first, under a cap of bytes; the engine takes pages
// back through reclaim() when its requests need them. KV made from text is handed to `keep`, so that the next
// reader finds it on disk. A damaged extent is quarantined, counted and made again.
// Threads: load() by one thread at a time; reclaim(), drop() and the const functions by any. Cost: a hit
// costs nothing; disk one read and a copy a passage; text its prefill.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/encoder.h"
#include "store/catalog.h"

namespace rhapsode::recall {

struct KvWanted {
  int64_t passage = 0;
  const PassageTokens* tokens = nullptr;
};

struct KvTierStats {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t encoded = 0;
  uint64_t quarantined = 0;
  uint64_t bytes = 0;
};

// What load() finds out for the store's sake. Either may be empty; reading goes on whatever they do.
struct KvUpkeep {
  std::function<void(std::span<const store::KvRecord> made)> keep;  // from text just now
  std::function<void(int64_t passage)> quarantine;                  // its extent is damaged
};

class KvTier {
 public:
  KvTier(PassRunner& runner, Encoder& encoder, std::string fingerprint, kernels::KvType stored)
      : runner_(runner), encoder_(encoder), fingerprint_(std::move(fingerprint)), stored_(stored) {}

  // Pins of each passage's pages, in the order asked for.
  Result<std::vector<std::vector<store::PagePin>>> load(const store::Catalog& catalog,
                                                        std::span<const KvWanted> wanted,
                                                        const KvUpkeep& upkeep);
  bool holds(int64_t passage) const;
  void drop(int64_t passage);
  void clear();
  // Lets go of pages that nobody reads until `blocks` are free; returns how many are.
  int reclaim(int blocks);
  void set_cap(uint64_t bytes);
  KvTierStats stats() const;

 private:
  struct Entry {
    std::vector<store::PagePin> pages;
    std::list<int64_t>::iterator recency;
  };
  std::vector<store::PagePin> share(int64_t passage);  // empty: not here
  void insert(int64_t passage, std::span<const store::PagePin> pages);
  Result<std::vector<store::PagePin>> from_disk(const store::Catalog& catalog, const KvWanted& wanted,
                                                const KvUpkeep& upkeep);
  int evict_locked(int blocks, bool unused_only);

  PassRunner& runner_;
  Encoder& encoder_;
  std::string fingerprint_;
  kernels::KvType stored_;

  mutable std::mutex mutex_;
  std::map<int64_t, Entry> entries_;  // guarded by mutex_
  std::list<int64_t> recency_;        // most recent first; guarded by mutex_
  uint64_t blocks_ = 0;               // guarded by mutex_
  uint64_t cap_bytes_ = UINT64_MAX;   // guarded by mutex_
  KvTierStats stats_;                 // guarded by mutex_
};

}  // namespace rhapsode::recall
