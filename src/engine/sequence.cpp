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

int Sequence::blocks_needed(int rows) const {
  const int pages_after = (tokens_ + rows + kPageTokens - 1) / kPageTokens;
  const int tail = tokens_ % kPageTokens;
  const bool copies_tail = rows > 0 && tail > 0 && !entries_[tokens_ / kPageTokens].pin.exclusive();
  return std::max(0, pages_after - pages()) + (copies_tail ? 1 : 0);
}

bool Sequence::reserve(int rows) {
  const int tail = tokens_ % kPageTokens;
  if (rows > 0 && tail > 0) {
    Entry& entry = entries_[tokens_ / kPageTokens];
    if (!entry.pin.exclusive()) {
      store::PagePin copy = pool_->copy(*entry.pin.get(), tail);
      if (!copy) return false;
      entry.pin = std::move(copy);
    }
    // A sole owner may still find slots that another sequence, gone by now, had written behind ours.
    entry.pin->count = tail;
  }
  const int pages_after = (tokens_ + rows + kPageTokens - 1) / kPageTokens;
  while (pages() < pages_after) {
    store::PagePin pin = pool_->allocate();
    if (!pin) return false;
    const int32_t first = pages() * kPageTokens;
    for (int slot = 0; slot < kPageTokens; ++slot) pin->positions[slot] = first + slot;
    entries_.push_back({std::move(pin), 0, 0});
  }
  return true;
}

void Sequence::add_to_plan(int rows, kernels::BatchPlan& plan) const {
  kernels::SequencePlan sequence;
  sequence.row_begin = plan.rows();
  sequence.row_count = rows;
  const int total = tokens_ + rows;
  const int pages_used = (total + kPageTokens - 1) / kPageTokens;
  sequence.references.reserve(pages_used);
  for (int i = 0; i < pages_used; ++i) {
    const Entry& entry = entries_[i];
    sequence.references.push_back(
        {entry.pin.get(), entry.shift, false, first_slots(std::min(kPageTokens, total - i * kPageTokens))});
  }
  for (int position = tokens_; position < total; ++position) {
    plan.positions.push_back(position);
    plan.writes.push_back({entries_[position / kPageTokens].pin.get(), position % kPageTokens});
  }
  plan.sequences.push_back(std::move(sequence));
}

void Sequence::commit(int rows) {
  while (rows > 0) {
    Entry& entry = entries_[tokens_ / kPageTokens];
    const int taken = std::min(rows, kPageTokens - entry.slots);
    entry.slots += taken;
    entry.pin->count = entry.slots;
    tokens_ += taken;
    rows -= taken;
  }
}

Sequence Sequence::fork() const {
  Sequence other(*pool_);
  const int used = (tokens_ + kPageTokens - 1) / kPageTokens;
  other.entries_.reserve(used);
  for (int i = 0; i < used; ++i) {
    other.entries_.push_back({entries_[i].pin.share(), entries_[i].shift, entries_[i].slots});
  }
  other.tokens_ = tokens_;
  other.renumbered_ = renumbered_;
  return other;
}

void Sequence::adopt(store::PagePin pin, int slots) {
  assert(tokens_ % kPageTokens == 0 && "a page is adopted behind full pages only");
  entries_.resize(tokens_ / kPageTokens);
  entries_.push_back({std::move(pin), 0, slots});
  tokens_ += slots;
}

void Sequence::truncate(int tokens) {
  if (tokens >= tokens_) return;
  tokens_ = std::max(tokens, 0);
  entries_.resize((tokens_ + kPageTokens - 1) / kPageTokens);
  if (tokens_ % kPageTokens) entries_.back().slots = tokens_ % kPageTokens;
}

int Sequence::drop_pages(int first, int count) {
  count = std::min(count, tokens_ / kPageTokens - first);
  if (count <= 0) return 0;
  entries_.erase(entries_.begin() + first, entries_.begin() + first + count);
  const int dropped = count * kPageTokens;
  for (size_t i = first; i < entries_.size(); ++i) entries_[i].shift -= dropped;
  tokens_ -= dropped;
  renumbered_ = true;
  return dropped;
}

}  // namespace rhapsode::engine
