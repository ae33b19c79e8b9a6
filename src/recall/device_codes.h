// The codes of a memory's passages on a device, brought there as questions come to need them.
//
// What was brought stays, by passage: a later question brings only what it may see and the device lacks. When
// the catalog has changed, codes are compared with what was brought (their number, first and last word)
// before they are used again, so that a passage that was encoded anew is brought anew. Passages that are gone
// keep their room until half of the room is theirs; then all of it is made again. Scores and order are those
// of index::best_passages() with a question of four bits. Threads: one at a time. Errors: the source's and
// the device's (kNoSpace: the codes do not fit). Cost: the transfer once, about a second for 100 million
// tokens; a question pays for looking up what it may see, nothing when that is everything.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "index/passage_index.h"
#include "kernels/code_search.h"

namespace rhapsode::recall {

using CodeSearchMaker = std::function<Result<std::unique_ptr<kernels::CodeSearch>>(int dimensions)>;

class DeviceCodes {
 public:
  DeviceCodes(CodeSearchMaker maker, int dimensions) : maker_(std::move(maker)), dimensions_(dimensions) {}

  // The catalog has changed: nothing that was brought is taken on trust.
  void distrust();
  // The best `count` of the allowed passages (ids ascending), best first; those without codes are left out.
  // `everything`: they are the same as for the last question with it since distrust().
  Result<std::vector<index::ScanHit>> best(const index::QuestionVectors& question,
                                           std::span<const int64_t> allowed, bool everything,
                                           index::CodeSource& codes, int count);

  size_t passages() const { return known_.size(); }
  uint64_t device_bytes() const { return search_ ? search_->device_bytes() : 0; }

 private:
  struct Known {
    int64_t id = 0;
    uint64_t sample = 0;  // of its codes
    uint32_t slot = 0;
    bool trusted = false;
  };
  Status bring(std::span<const int64_t> allowed, index::CodeSource& codes);
  Status add(std::span<const index::PassageCodes> passages);
  Status start_anew();
  std::vector<uint64_t> bits_of(std::span<const int64_t> allowed) const;

  CodeSearchMaker maker_;
  int dimensions_;
  std::unique_ptr<kernels::CodeSearch> search_;
  std::vector<Known> known_;  // ids ascending
  bool has_everything_ = false;
  std::vector<uint64_t> everything_;  // the slots of everything
};

}  // namespace rhapsode::recall
