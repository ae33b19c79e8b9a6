// A sequence: the tokens one request has in KV, as an ordered list of pinned pages.
//
// Own pages fill front to back; every one but the last is full. Passages of a memory are taken in as they are
// (adopt_passage): their pages are sealed, the last one maybe short, and read at a shift. Appending is three
// steps: reserve() makes room (allocating, and copying a last page that is shared), add_to_plan() writes the
// rows into a batch, commit() counts them once the pass has run. fork() shares every page and copies nothing;
// the first side that appends copies the last page if it is partly filled (copy-on-write). Positions: page i
// is read at shift_i; dropping pages from the middle only lowers the shifts of those behind, so a
// conversation of any length stays inside the trained range (design: "long lives"). Blending: tokens of a
// passage that are left out of its shared pages are evaluated again as *scattered* rows, at the positions the
// passage gives them; their fresh keys fill private pages or take the places of the stale ones in private
// copies of the passage's (blend_tokens), or lie in private pages already (adopt_fresh). Conversations: new
// rows may go on in a frame that others will read at another shift (open_frame). Threads: one at a time.
// Cost: fork O(pages) counter increments; add_to_plan O(pages + rows).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/context_plan.h"
#include "store/page_pool.h"

namespace rhapsode::engine {

class Sequence {
 public:
  explicit Sequence(store::PagePool& pool) : pool_(&pool) {}
  Sequence(Sequence&&) noexcept = default;
  Sequence& operator=(Sequence&&) noexcept = default;

  // Tokens in KV.
  int tokens() const { return tokens_; }
  // The position of the next row: tokens(), less where passages share positions.
  int32_t position() const { return position_; }
  int pages() const { return static_cast<int>(entries_.size()); }
  const store::PagePin& page(int index) const { return entries_[index].pin; }
  bool renumbered() const { return renumbered_; }

  // Scattered rows still to be evaluated; they come before all others.
  int scattered_left() const { return static_cast<int>(scattered_.size()) - scattered_done_; }

  // Blocks that reserve(rows) would have to take from the pool.
  int blocks_needed(int rows) const;
  // Makes room for `rows` more tokens; false when the pool has no block left (what was made stays reserved).
  bool reserve(int rows);
  // Appends `rows` rows to a batch: what is left of the scattered ones, then those at the next positions.
  // They must be reserved.
  void add_to_plan(int rows, kernels::BatchPlan& plan) const;
  void commit(int rows);
  // Everything that the next row would see.
  std::vector<kernels::PageReference> references() const;

  Sequence fork() const;
  // Takes over the first `slots` slots of a page computed as continuation of what is here (a prefix-cache
  // hit).
  void adopt(store::PagePin pin, int slots);
  // Reads a passage of `tokens` tokens behind what is here: its frame's position 0 becomes `shift`; the pages
  // may begin further on in their frame. Later rows stand behind the furthest position so far. `left_out`:
  // tokens of it that nobody sees, ascending.
  void adopt_passage(std::span<const store::PagePin> pages, int tokens, int32_t shift,
                     std::span<const int32_t> left_out = {});
  // Private pages that hold fresh keys already, at the positions that the pages say: for tokens that were
  // left out of passages taken in before, whose own tokens() counts them as.
  void adopt_fresh(std::span<const store::PagePin> pages);
  // The next rows are tokens of a frame that has `frame_tokens` tokens already: they are stored at its
  // positions from there on, behind the first slots of `tail`, its last page, if that one is not full. Those
  // slots are not seen here: the frame's tokens are read where adopt_passage() put them.
  void open_frame(const store::PagePin* tail, int32_t frame_tokens);
  // Pins of the pages in use from `first` on.
  std::vector<store::PagePin> share_pages(int first) const;
  // The next rows are scattered ones, at these positions, ascending: fresh keys for tokens that were left out
  // of passages. tokens() counts those tokens as passages' own already.
  void blend_tokens(std::vector<int32_t> positions);
  // The same, where each row's keys go to a slot of a page that was adopted and is this sequence's alone, in
  // place of the passage's: nothing is left out.
  void rewrite_tokens(std::vector<int32_t> positions, std::vector<kernels::RowWrite> places);
  // Forgets the last tokens, so that `tokens` remain.
  void truncate(int tokens);
  // Drops `count` full pages starting at page `first` and closes the gap in positions. Returns the tokens
  // dropped.
  int drop_pages(int first, int count);

 private:
  struct Entry {
    store::PagePin pin;
    int32_t shift = 0;
    int32_t slots = 0;                        // filled slots that belong to this sequence
    int32_t capacity = kernels::kPageTokens;  // slots: a sealed page takes no more
    uint64_t left_out = 0;                    // slots nobody sees
    bool scattered = false;                   // a private page of scattered rows

    int room() const { return capacity - slots; }
  };
  // Rows that reserved pages can take: scattered ones, and those at the next positions.
  struct Room {
    int scattered = 0;
    int next = 0;
  };
  // Entries in use; those behind them are reserved and empty.
  int used() const;
  // The entry that the next row goes to; -1 when it needs a new one.
  int open_entry() const;
  Room room() const;
  bool add_page(Entry entry, std::span<const int32_t> scattered, int32_t first_position);
  // The device that own pages are taken from: where the last one came from.
  int home() const { return home_ < 0 ? pool_->emptiest() : home_; }

  store::PagePool* pool_;
  std::vector<Entry> entries_;                // the tail may hold reserved entries without slots
  std::vector<int32_t> scattered_;            // positions of scattered rows
  std::vector<kernels::RowWrite> rewritten_;  // where these go; empty: to private pages
  int scattered_done_ = 0;
  int tokens_ = 0;
  int32_t position_ = 0;
  int32_t frame_shift_ = 0;  // of own pages
  bool renumbered_ = false;
  int home_ = -1;  // no own page yet
};

}  // namespace rhapsode::engine
