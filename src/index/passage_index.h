// Finding the passages that answer a question best, in memories of any size: one interface over the exact
// scan of the codes and the approximate lists.
//
// The index holds, for passages it was told of, lists by anchors (impact_lists.h) in immutable segments;
// codes stay where they are (CodeSource) and decide every score: lists only choose candidates, which are then
// scored exactly, so that a returned score can be recomputed and a stale list can cost recall, never truth. A
// Scope is what one question may see: filters come first, passages the index does not know are scanned, and
// when few passages are left the scan of all of them is cheaper and exact (FindOptions::candidates).
// Ownership: the index owns segments and anchors; a Scope keeps its own view of them alive. Threads: any
// number of readers (scope, find, counts) beside one writer (add, remove, merge); a reader sees the state
// before or after a change, never between. Determinism: the same calls give the same index and answers, for
// any number of threads. Errors: the CodeSource's. Cost of find(): lists of `probes` anchors a token (1 ns a
// posting), then the scan of the candidates by signs and of the finalists exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "index/anchor_set.h"
#include "index/code_scan.h"
#include "index/id_set.h"
#include "index/impact_lists.h"

namespace rhapsode::index {

// Where codes come from; an id without codes gives no chunks. What it gives stays valid during one find().
class CodeSource {
 public:
  virtual ~CodeSource() = default;
  virtual Result<std::vector<PassageCodes>> codes(std::span<const int64_t> ids) = 0;
};

struct IndexSegment {
  std::shared_ptr<const ImpactLists> lists;
  std::shared_ptr<const PassageBits> live;
  size_t live_count = 0;
  int64_t number = 0;  // of its file; 0: has none yet
};

// A state of the index. Immutable.
struct IndexState {
  std::shared_ptr<const AnchorSet> anchors;
  std::vector<IndexSegment> segments;
  int64_t last_number = 0;  // of a file: numbers are never used twice
};

// What a question may see.
class Scope {
 public:
  // Passages to choose from.
  size_t passages() const { return listed_ + unlisted_.size(); }
  size_t unlisted() const { return unlisted_.size(); }

 private:
  friend class PassageIndex;
  std::shared_ptr<const IndexState> state_;
  std::vector<PassageBits> open_;  // [segments] allowed and live
  std::vector<int64_t> unlisted_;  // allowed, but not in the index
  size_t listed_ = 0;
};

struct FindOptions {
  int count = 40;
  int probes = 8;  // anchors a token
  // Listed passages that are looked at. With no more than that to choose from the answer is the exact one.
  size_t candidates = 4096;
  // Of more candidates than this, the best by the signs of the question (QuestionForm::kSigns) are scored
  // exactly.
  size_t finalists = 4096;
  bool exact = false;  // score every passage of the scope
  QuestionForm form = QuestionForm::kFourBits;
  int threads = 1;
};

struct Found {
  std::vector<ScanHit> hits;  // best first; ties by lower id
  bool exact = false;         // every passage of the scope was scored
  size_t scored = 0;          // passages
  uint64_t postings = 0;      // looked at
};

class PassageIndex {
 public:
  explicit PassageIndex(std::shared_ptr<const AnchorSet> anchors, ListOptions options = {});
  // Goes on from a state that was kept (index_files.h).
  PassageIndex(IndexState state, ListOptions options);

  // --- One writer at a time ---
  // Lists passages, replacing those of the same id. Returns how many were new. kInvalidArgument for a
  // negative id or one given twice; nothing changes then.
  Result<size_t> add(std::span<const PassageCodes> passages);
  // Returns how many were there; unknown ids and repetitions are no error. They are gone for every scope made
  // afterwards; their postings are gone with purge() or a merge.
  size_t remove(std::span<const int64_t> ids);
  // Joins small segments and those that are mostly dead, while readers and even the writer go on. Returns
  // whether there was something to do.
  Result<bool> merge();
  // Rewrites every segment that holds a removed passage.
  Status purge();
  // Takes over the numbers that IndexFolder::save() gave to segments of this index.
  void adopt_numbers(const IndexState& saved);

  // --- Readers ---
  size_t size() const;
  bool contains(int64_t id) const;
  std::shared_ptr<const IndexState> state() const;
  // Everything in the index.
  Scope scope() const;
  // The given ids, ascending, whether the index knows them or not.
  Scope scope(std::span<const int64_t> allowed) const;
  Result<Found> find(const QuestionVectors& question, const Scope& scope, CodeSource& codes,
                     const FindOptions& options) const;

 private:
  void publish(IndexState state);
  std::vector<size_t> choose_segments_to_merge(const IndexState& state) const;
  Status replace_segments(const IndexState& before, std::span<const size_t> chosen);

  ListOptions options_;
  std::mutex writing_;          // held by a change of state_
  mutable std::mutex reading_;  // held to take or exchange the pointer
  std::shared_ptr<const IndexState> state_;
};

// The exact scan of a scope given by codes alone, for memories without an index.
Found find_exactly(const QuestionVectors& question, std::span<const PassageCodes> passages,
                   const FindOptions& options);

}  // namespace rhapsode::index
