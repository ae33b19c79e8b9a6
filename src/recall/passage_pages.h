// Pages of passages by passage: what one tier of memory holds, the least recently used first to go.
//
// Ownership: holds a pin on every page. Dropping one that somebody still shares frees its memory later, when
// that one is done. Threads: one at a time (the tier's lock). Cost: a lookup; eviction walks what is in use.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "store/page_pool.h"

namespace rhapsode::recall {

std::vector<store::PagePin> share_all(std::span<const store::PagePin> pages);

class PassagePages {
 public:
  // Empty: not here. What is asked for becomes the most recent.
  std::vector<store::PagePin> share(int64_t passage);
  bool holds(int64_t passage) const { return entries_.contains(passage); }
  // Nothing happens when the passage is here.
  void insert(int64_t passage, std::span<const store::PagePin> pages);
  // Lets go of at least `blocks` blocks, if there are so many (that nobody else reads, with `unused_only`);
  // returns how many.
  int evict(int blocks, bool unused_only);
  void drop(int64_t passage);
  void clear();
  uint64_t blocks() const { return blocks_; }

 private:
  struct Entry {
    std::vector<store::PagePin> pages;
    std::list<int64_t>::iterator recency;
  };
  std::map<int64_t, Entry> entries_;
  std::list<int64_t> recency_;  // most recent first
  uint64_t blocks_ = 0;
};

}  // namespace rhapsode::recall
