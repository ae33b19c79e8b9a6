#include "engine/sequence.h"

#include <algorithm>
#include <cassert>

namespace rhapsode::engine {

using kernels::kPageTokens;

namespace {

uint64_t first_slots(int count) {
  return count >= kPageTokens ? ~0ull : (1ull << count) - 1;
}

}  // namespace

int Sequence::used() const {
  int count = pages();
  while (count > 0 && entries_[count - 1].slots == 0) --count;
  return count;
}

int Sequence::open_entry() const {
  const int last = used() - 1;
  return last >= 0 && entries_[last].room() > 0 ? last : -1;
}

int Sequence::blocks_needed(int rows) const {
  const int open = open_entry();
  const int room = open < 0 ? 0 : entries_[open].room();
  const int reserved = pages() - used();
  const int new_pages = (std::max(0, rows - room) + kPageTokens - 1) / kPageTokens;
  const bool copies_tail = rows > 0 && open >= 0 && !entries_[open].pin.exclusive();
  return std::max(0, new_pages - reserved) + (copies_tail ? 1 : 0);
}

bool Sequence::reserve(int rows) {
  const int open = open_entry();
  if (rows > 0 && open >= 0) {
    Entry& entry = entries_[open];
    if (!entry.pin.exclusive()) {
      store::PagePin copy = pool_->copy(*entry.pin.get(), entry.slots);
      if (!copy) return false;
      entry.pin = std::move(copy);
    }
    // A sole owner may still find slots that another sequence, gone by now, had written behind ours.
    entry.pin->count = entry.slots;
  }
  const int room = open < 0 ? 0 : entries_[open].room();
  const int pages_after = used() + (std::max(0, rows - room) + kPageTokens - 1) / kPageTokens;
  while (pages() < pages_after) {
    store::PagePin pin = pool_->allocate();
    if (!pin) return false;
    const int32_t first = position_ + room + (pages() - used()) * kPageTokens;
    for (int slot = 0; slot < kPageTokens; ++slot) pin->positions[slot] = first + slot;
    entries_.push_back({std::move(pin), 0, 0});
  }
  return true;
}

void Sequence::add_to_plan(int rows, kernels::BatchPlan& plan) const {
  kernels::SequencePlan sequence;
  sequence.row_begin = plan.rows();
  sequence.row_count = rows;
  sequence.references.reserve(entries_.size());
  const int open = open_entry();
  const int first_written = open >= 0 ? open : used();
  int left = rows;
  for (int i = 0; i < pages() && (i < first_written || left > 0 || i < used()); ++i) {
    const Entry& entry = entries_[i];
    const int taken = i < first_written ? 0 : std::min(left, entry.room());
    for (int slot = entry.slots; slot < entry.slots + taken; ++slot) {
      plan.positions.push_back(position_ + rows - left + slot - entry.slots);
      plan.writes.push_back({entry.pin.get(), slot});
    }
    left -= taken;
    sequence.references.push_back({entry.pin.get(), entry.shift, false, first_slots(entry.slots + taken)});
  }
  plan.sequences.push_back(std::move(sequence));
}

void Sequence::commit(int rows) {
  tokens_ += rows;
  position_ += rows;
  int index = open_entry();
  if (index < 0) index = used();
  for (; rows > 0; ++index) {
    Entry& entry = entries_[index];
    const int taken = std::min(rows, entry.room());
    entry.slots += taken;
    entry.pin->count = entry.slots;
    rows -= taken;
  }
}

Sequence Sequence::fork() const {
  Sequence other(*pool_);
  const int count = used();
  other.entries_.reserve(count);
  for (int i = 0; i < count; ++i) {
    const Entry& entry = entries_[i];
    other.entries_.push_back({entry.pin.share(), entry.shift, entry.slots, entry.capacity});
  }
  other.tokens_ = tokens_;
  other.position_ = position_;
  other.renumbered_ = renumbered_;
  return other;
}

void Sequence::adopt(store::PagePin pin, int slots) {
  assert(open_entry() < 0 && "a page is adopted behind full pages only");
  entries_.resize(used());
  entries_.push_back({std::move(pin), 0, slots});
  tokens_ += slots;
  position_ += slots;
}

void Sequence::adopt_passage(std::span<const store::PagePin> pages, int tokens, int32_t shift) {
  entries_.resize(used());
  // What stood open is sealed: the passage comes behind it.
  if (!entries_.empty()) entries_.back().capacity = entries_.back().slots;
  int left = tokens;
  for (const store::PagePin& pin : pages) {
    const int slots = std::min(left, kPageTokens);
    entries_.push_back({pin.share(), shift, slots, slots});
    left -= slots;
  }
  assert(left == 0 && "the pages hold the passage");
  tokens_ += tokens;
  position_ = std::max(position_, shift + tokens);
}

void Sequence::truncate(int tokens) {
  if (tokens >= tokens_) return;
  tokens = std::max(tokens, 0);
  entries_.resize(used());
  position_ = tokens == 0 ? 0 : position_ - (tokens_ - tokens);
  for (int excess = tokens_ - tokens; excess > 0;) {
    Entry& entry = entries_.back();
    const int removed = std::min(excess, entry.slots);
    entry.slots -= removed;
    if (entry.capacity < kPageTokens) entry.capacity = entry.slots;
    excess -= removed;
    if (entry.slots == 0) entries_.pop_back();
  }
  tokens_ = tokens;
}

int Sequence::drop_pages(int first, int count) {
  count = std::min(count, used() - first);
  // The page that is being filled stays.
  if (first + count == used() && open_entry() >= 0) --count;
  if (count <= 0) return 0;
  int dropped = 0;
  for (int i = first; i < first + count; ++i) dropped += entries_[i].slots;
  entries_.erase(entries_.begin() + first, entries_.begin() + first + count);
  for (size_t i = first; i < entries_.size(); ++i) entries_[i].shift -= dropped;
  tokens_ -= dropped;
  position_ -= dropped;
  renumbered_ = true;
  return dropped;
}

}  // namespace rhapsode::engine
