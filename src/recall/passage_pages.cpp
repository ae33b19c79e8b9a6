#include "recall/passage_pages.h"

#include <algorithm>

namespace rhapsode::recall {

std::vector<store::PagePin> share_all(std::span<const store::PagePin> pages) {
  std::vector<store::PagePin> shared;
  shared.reserve(pages.size());
  for (const store::PagePin& page : pages) shared.push_back(page.share());
  return shared;
}

std::vector<store::PagePin> PassagePages::share(int64_t passage) {
  const auto found = entries_.find(passage);
  if (found == entries_.end()) return {};
  recency_.splice(recency_.begin(), recency_, found->second.recency);
  return share_all(found->second.pages);
}

void PassagePages::insert(int64_t passage, std::span<const store::PagePin> pages) {
  if (holds(passage)) return;
  recency_.push_front(passage);
  entries_.emplace(passage, Entry{share_all(pages), recency_.begin()});
  blocks_ += pages.size();
}

int PassagePages::evict(int blocks, bool unused_only) {
  int freed = 0;
  for (auto oldest = recency_.end(); freed < blocks && oldest != recency_.begin();) {
    --oldest;
    const Entry& entry = entries_.at(*oldest);
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

void PassagePages::drop(int64_t passage) {
  const auto found = entries_.find(passage);
  if (found == entries_.end()) return;
  blocks_ -= found->second.pages.size();
  recency_.erase(found->second.recency);
  entries_.erase(found);
}

void PassagePages::clear() {
  entries_.clear();
  recency_.clear();
  blocks_ = 0;
}

}  // namespace rhapsode::recall
