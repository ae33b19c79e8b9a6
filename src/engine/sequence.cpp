#include "engine/sequence.h"

#include <algorithm>
#include <cassert>

namespace rhapsode::engine {

using kernels::first_slots;
using kernels::kPageTokens;

int Sequence::used() const {
  int count = pages();
  while (count > 0 && entries_[count - 1].slots == 0) --count;
  return count;
}

int Sequence::open_entry() const {
  const int last = used() - 1;
  return last >= 0 && entries_[last].room() > 0 ? last : -1;
}

Sequence::Room Sequence::room() const {
  Room room;
  const int open = open_entry();
  for (int i = open < 0 ? used() : open; i < pages(); ++i) {
    (entries_[i].scattered ? room.scattered : room.next) += entries_[i].room();
  }
  return room;
}

int Sequence::blocks_needed(int rows) const {
  const Room there = room();
  const int open = open_entry();
  const int scattered = std::min(rows, scattered_left());
  const auto pages_of = [](int count) { return (std::max(0, count) + kPageTokens - 1) / kPageTokens; };
  const bool copies_tail = rows > 0 && open >= 0 && !entries_[open].pin.exclusive();
  // Scattered rows are few and known: their pages are reserved at once.
  const bool own_pages = scattered > 0 && rewritten_.empty();
  const int scattered_pages = own_pages ? pages_of(scattered_left() - there.scattered) : 0;
  return scattered_pages + pages_of(rows - scattered - there.next) + (copies_tail ? 1 : 0);
}

bool Sequence::add_page(Entry entry, std::span<const int32_t> scattered, int32_t first_position) {
  entry.pin = pool_->allocate(home());
  if (!entry.pin) return false;
  home_ = entry.pin->device;
  kernels::Page& page = *entry.pin.get();
  for (int slot = 0; slot < kPageTokens; ++slot) page.positions[slot] = first_position + slot;
  std::copy(scattered.begin(), scattered.end(), page.positions.begin());
  page.consecutive = scattered.empty();
  entries_.push_back(std::move(entry));
  return true;
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
  Room there = room();
  const int scattered = std::min(rows, scattered_left());
  while (rewritten_.empty() && scattered > 0 && there.scattered < scattered_left()) {
    const auto rest = std::span<const int32_t>(scattered_).subspan(scattered_done_ + there.scattered);
    const auto positions = rest.first(std::min<size_t>(rest.size(), kPageTokens));
    Entry entry;
    entry.capacity = static_cast<int32_t>(positions.size());
    entry.scattered = true;
    if (!add_page(std::move(entry), positions, 0)) return false;
    there.scattered += static_cast<int>(positions.size());
  }
  while (there.next < rows - scattered) {
    Entry entry;
    entry.shift = frame_shift_;
    if (!add_page(std::move(entry), {}, position_ - frame_shift_ + there.next)) return false;
    there.next += kPageTokens;
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
  int scattered = scattered_done_;
  int32_t position = position_;
  for (; !rewritten_.empty() && left > 0 && scattered < static_cast<int>(scattered_.size()); --left) {
    plan.writes.push_back(rewritten_[scattered]);
    plan.positions.push_back(scattered_[scattered++]);
  }
  for (int i = 0; i < pages() && (i < first_written || left > 0 || i < used()); ++i) {
    const Entry& entry = entries_[i];
    const int taken = i < first_written ? 0 : std::min(left, entry.room());
    for (int slot = entry.slots; slot < entry.slots + taken; ++slot) {
      plan.positions.push_back(entry.scattered ? scattered_[scattered++] : position++);
      plan.writes.push_back({entry.pin.get(), slot});
    }
    left -= taken;
    const uint64_t seen = first_slots(entry.slots + taken) & ~entry.left_out;
    if (seen != 0) sequence.references.push_back({entry.pin.get(), entry.shift, false, seen});
  }
  plan.sequences.push_back(std::move(sequence));
}

std::vector<kernels::PageReference> Sequence::references() const {
  kernels::BatchPlan plan;
  add_to_plan(0, plan);
  return std::move(plan.sequences.front().references);
}

void Sequence::commit(int rows) {
  if (!rewritten_.empty()) {
    const int scattered = std::min(rows, scattered_left());
    scattered_done_ += scattered;
    rows -= scattered;
  }
  int index = open_entry();
  if (index < 0) index = used();
  for (; rows > 0; ++index) {
    Entry& entry = entries_[index];
    const int taken = std::min(rows, entry.room());
    entry.slots += taken;
    entry.pin->count = entry.slots;
    rows -= taken;
    if (entry.scattered) {
      scattered_done_ += taken;
    } else {
      tokens_ += taken;
      position_ += taken;
    }
  }
}

Sequence Sequence::fork() const {
  Sequence other(*pool_);
  const int count = used();
  other.entries_.reserve(count);
  for (int i = 0; i < count; ++i) {
    const Entry& entry = entries_[i];
    other.entries_.push_back(
        {entry.pin.share(), entry.shift, entry.slots, entry.capacity, entry.left_out, entry.scattered});
  }
  other.scattered_ = scattered_;
  other.rewritten_ = rewritten_;
  other.scattered_done_ = scattered_done_;
  other.tokens_ = tokens_;
  other.position_ = position_;
  other.frame_shift_ = frame_shift_;
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

void Sequence::adopt_passage(std::span<const store::PagePin> pages, int tokens, int32_t shift,
                             std::span<const int32_t> left_out) {
  entries_.resize(used());
  // What stood open is sealed: the passage comes behind it.
  if (!entries_.empty()) entries_.back().capacity = entries_.back().slots;
  int left = tokens;
  for (const store::PagePin& pin : pages) {
    const int slots = std::min(left, kPageTokens);
    entries_.push_back({pin.share(), shift, slots, slots});
    left -= slots;
  }
  const size_t first = entries_.size() - pages.size();
  for (const int32_t token : left_out) {
    entries_[first + token / kPageTokens].left_out |= 1ull << (token % kPageTokens);
  }
  assert(left == 0 && "the pages hold the passage");
  tokens_ += tokens;
  const int32_t first_position = pages.empty() ? 0 : pages.front()->positions[0];
  position_ = std::max(position_, shift + first_position + tokens);
}

void Sequence::open_frame(const store::PagePin* tail, int32_t frame_tokens) {
  entries_.resize(used());
  if (!entries_.empty()) entries_.back().capacity = entries_.back().slots;
  frame_shift_ = position_ - frame_tokens;
  if (tail == nullptr) return;
  const int32_t filled = frame_tokens - tail->get()->positions[0];
  assert(filled > 0 && filled < kPageTokens && "the frame's last page has room");
  entries_.push_back({tail->share(), frame_shift_, filled, kPageTokens, first_slots(filled)});
}

std::vector<store::PagePin> Sequence::share_pages(int first) const {
  std::vector<store::PagePin> shared;
  for (int i = first; i < used(); ++i) shared.push_back(entries_[i].pin.share());
  return shared;
}

void Sequence::adopt_fresh(std::span<const store::PagePin> pages) {
  if (pages.empty()) return;
  entries_.resize(used());
  if (!entries_.empty()) entries_.back().capacity = entries_.back().slots;
  for (const store::PagePin& pin : pages) {
    Entry entry{pin.share(), 0, pin->count, pin->count};
    entry.scattered = true;
    entries_.push_back(std::move(entry));
  }
}

void Sequence::blend_tokens(std::vector<int32_t> positions) {
  assert(scattered_left() == 0 && std::is_sorted(positions.begin(), positions.end()));
  entries_.resize(used());
  if (!entries_.empty()) entries_.back().capacity = entries_.back().slots;
  scattered_ = std::move(positions);
  rewritten_.clear();
  scattered_done_ = 0;
}

void Sequence::rewrite_tokens(std::vector<int32_t> positions, std::vector<kernels::RowWrite> places) {
  assert(positions.size() == places.size());
  blend_tokens(std::move(positions));
  rewritten_ = std::move(places);
}

void Sequence::truncate(int tokens) {
  if (tokens >= tokens_ && scattered_.empty()) return;
  if (tokens <= 0) {
    entries_.clear();
    scattered_.clear();
    rewritten_.clear();
    scattered_done_ = tokens_ = 0;
    position_ = frame_shift_ = 0;
    return;
  }
  assert(scattered_.empty() && "a blended sequence is only forgotten as a whole");
  entries_.resize(used());
  position_ -= tokens_ - tokens;
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
