#include "index/impact_lists.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#include "base/parallel.h"
#include "index/code_scan_kernels.h"

namespace rhapsode::index {
namespace {

constexpr size_t kSlicePassages = 256;  // what a thread takes at a time
constexpr int kMostImpact = 255;
constexpr float kImpactSteps = 400.0f;     // of a dot product of 1
constexpr float kChanceDeviations = 1.8f;  // dot products up to there, in 1 / sqrt(d), say nothing

struct Posting {
  uint16_t anchor = 0;
  uint8_t impact = 0;
};

struct FreeAligned {
  void operator()(std::byte* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
};

// The postings of a run of passages. Codes are gathered into batches across the borders of passages.
class Lister {
 public:
  Lister(const AnchorSet& anchors, const ListOptions& options)
      : anchors_(anchors),
        options_(options),
        count_(static_cast<size_t>(anchors.count())),
        words_((anchors.dimensions() + 63) / 64),
        floor_(kChanceDeviations / std::sqrt(static_cast<float>(anchors.dimensions()))),
        scratch_(
            static_cast<std::byte*>(::operator new (four_bit_scratch_bytes(words_), std::align_val_t{64}))),
        dots_(static_cast<size_t>(AnchorSet::kBlock) * kBatchCodes),
        best_(kBatchCodes * count_, std::numeric_limits<int32_t>::lowest()),
        impacts_(count_) {}

  void list(std::span<const PassageCodes> passages, std::vector<Posting>* postings) {
    const size_t code_bytes = static_cast<size_t>(words_) * sizeof(uint64_t);
    for (const PassageCodes& passage : passages) {
      std::vector<Posting>* out = postings++;
      for (int done = 0; done < passage.chunks;) {
        const int take = std::min(passage.chunks - done, kBatchCodes - filled_);
        for (int i = 0; i < take; ++i) {
          codes_[static_cast<size_t>(filled_ + i)] =
              passage.codes + static_cast<size_t>(done + i) * code_bytes;
        }
        done += take;
        parts_.push_back({{filled_, filled_ + take}, passage.chunks, done == passage.chunks ? out : nullptr});
        filled_ += take;
        if (filled_ == kBatchCodes) flush();
      }
    }
    flush();
  }

 private:
  struct Part {
    BatchRange range;
    int chunks = 0;                       // of its passage
    std::vector<Posting>* out = nullptr;  // where the passage ends with it
  };

  void flush() {
    if (filled_ == 0) return;
    std::fill(codes_.begin() + filled_, codes_.end(), codes_[0]);
    const ScanKernels& kernels = scan_kernels();
    for (size_t b = 0; b < anchors_.blocks().size(); ++b) {
      const FourBitQuestion& block = anchors_.blocks()[b];
      kernels.four_bit(block, {codes_.data(), filled_, scratch_.get()}, dots_.data());
      for (size_t p = 0; p < parts_.size(); ++p) {
        kernels.raise_integers(dots_.data(), parts_[p].range, block.tokens,
                               best_.data() + p * count_ + b * AnchorSet::kBlock);
      }
    }
    for (size_t p = 0; p < parts_.size(); ++p) {
      int32_t* best = best_.data() + p * count_;
      const bool unfinished = parts_[p].out == nullptr;
      if (!unfinished) take_largest(best, parts_[p]);
      // Only the last part can be unfinished: it goes on as the first of the next batch.
      if (unfinished && p > 0) std::copy_n(best, count_, best_.data());
      if (!unfinished || p > 0) std::fill_n(best, count_, std::numeric_limits<int32_t>::lowest());
    }
    filled_ = 0;
    parts_.clear();
  }

  void take_largest(const int32_t* best, const Part& part) {
    std::array<uint32_t, kMostImpact + 1> counts{};
    for (size_t a = 0; a < count_; ++a) {
      const float dot = anchors_.scale(static_cast<int>(a)) * static_cast<float>(best[a]);
      const auto impact =
          static_cast<int>(std::clamp((dot - floor_) * kImpactSteps, 0.0f, float{kMostImpact}));
      impacts_[a] = static_cast<uint8_t>(impact);
      ++counts[static_cast<size_t>(impact)];
    }
    const auto wanted = static_cast<uint32_t>(
        std::min<int64_t>(int64_t{options_.postings_a_chunk} * part.chunks, static_cast<int64_t>(count_)));
    // All above `least`, and of those equal to it the first.
    uint32_t above = 0;
    int least = kMostImpact;
    for (; least > 1 && above + counts[static_cast<size_t>(least)] < wanted; --least) {
      above += counts[static_cast<size_t>(least)];
    }
    uint32_t equal = wanted - std::min(above, wanted);
    for (size_t a = 0; a < count_; ++a) {
      if (impacts_[a] < least || (impacts_[a] == least && equal == 0)) continue;
      if (impacts_[a] == least) --equal;
      part.out->push_back({static_cast<uint16_t>(a), impacts_[a]});
    }
  }

  const AnchorSet& anchors_;
  const ListOptions& options_;
  size_t count_;
  int words_;
  float floor_;
  std::unique_ptr<std::byte, FreeAligned> scratch_;
  std::vector<int32_t> dots_;     // [block][kBatchCodes]
  std::vector<int32_t> best_;     // [parts][anchors]
  std::vector<uint8_t> impacts_;  // [anchors] of the passage at hand
  std::array<const std::byte*, kBatchCodes> codes_{};
  std::vector<Part> parts_;
  int filled_ = 0;
};

Status check_passages(std::span<const PassageCodes> passages) {
  if (passages.size() > kMostSegmentPassages) {
    return make_error(ErrorKind::kInvalidArgument, "a segment of an index holds {} passages, not {}",
                      kMostSegmentPassages, passages.size());
  }
  for (size_t i = 1; i < passages.size(); ++i) {
    if (passages[i - 1].id >= passages[i].id) {
      return make_error(ErrorKind::kInvalidArgument,
                        "passages of an index come in the order of their ids, each once: {} after {}",
                        passages[i].id, passages[i - 1].id);
    }
  }
  return {};
}

}  // namespace

Result<ImpactLists> ImpactLists::build(const AnchorSet& anchors, std::span<const PassageCodes> passages,
                                       const ListOptions& options) {
  RH_TRY_STATUS(check_passages(passages));
  std::vector<std::vector<Posting>> postings(passages.size());
  const size_t slices = (passages.size() + kSlicePassages - 1) / kSlicePassages;
  std::atomic<size_t> next{0};
  run_on_threads(std::min(options.threads, static_cast<int>(slices)), [&] {
    Lister lister(anchors, options);
    for (size_t slice = next++; slice < slices; slice = next++) {
      const size_t begin = slice * kSlicePassages;
      lister.list(passages.subspan(begin, std::min(kSlicePassages, passages.size() - begin)),
                  postings.data() + begin);
    }
  });
  ImpactLists lists;
  lists.anchor_id_ = anchors.id();
  lists.begins_.assign(static_cast<size_t>(anchors.count()) + 1, 0);
  for (size_t p = 0; p < passages.size(); ++p) {
    lists.ids_.push_back(passages[p].id);
    for (const Posting& posting : postings[p]) ++lists.begins_[posting.anchor + size_t{1}];
  }
  for (size_t a = 1; a < lists.begins_.size(); ++a) lists.begins_[a] += lists.begins_[a - 1];
  lists.passages_.resize(lists.begins_.back());
  lists.impacts_.resize(lists.begins_.back());
  std::vector<uint32_t> ends(lists.begins_.begin(), lists.begins_.end() - 1);
  for (size_t p = 0; p < passages.size(); ++p) {
    for (const Posting& posting : postings[p]) {
      const uint32_t at = ends[posting.anchor]++;
      lists.passages_[at] = static_cast<uint16_t>(p);
      lists.impacts_[at] = posting.impact;
    }
  }
  return lists;
}

Result<ImpactLists> ImpactLists::merge(std::span<const MergePart> parts) {
  struct Living {
    int64_t id;
    size_t part;
    size_t passage;
  };
  std::vector<Living> living;
  std::vector<std::vector<int32_t>> numbers;  // [parts][passages] in the merged segment; -1: gone
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::span<const int64_t> ids = parts[i].lists->ids();
    numbers.emplace_back(ids.size(), -1);
    for (size_t p = 0; p < ids.size(); ++p) {
      if (parts[i].live->test(p)) living.push_back({ids[p], i, p});
    }
  }
  std::sort(living.begin(), living.end(), [](const Living& a, const Living& b) { return a.id < b.id; });
  std::vector<PassageCodes> merged;
  for (const Living& one : living) merged.push_back({one.id, nullptr, 0});
  RH_TRY_STATUS(check_passages(merged));
  ImpactLists lists;
  lists.anchor_id_ = parts[0].lists->anchor_id_;
  for (size_t n = 0; n < living.size(); ++n) {
    lists.ids_.push_back(living[n].id);
    numbers[living[n].part][living[n].passage] = static_cast<int32_t>(n);
  }
  lists.begins_.push_back(0);
  std::vector<std::pair<uint16_t, uint8_t>> row;
  for (size_t anchor = 0; anchor < parts[0].lists->anchors(); ++anchor) {
    row.clear();
    for (size_t i = 0; i < parts.size(); ++i) {
      RH_TRY(const FetchedLists fetched, parts[i].lists->fetch(std::span(&anchor, 1)));
      const Postings list = fetched.lists[0];
      for (size_t p = 0; p < list.passages.size(); ++p) {
        const int32_t number = numbers[i][list.passages[p]];
        if (number >= 0) row.emplace_back(static_cast<uint16_t>(number), list.impacts[p]);
      }
    }
    std::sort(row.begin(), row.end());
    for (const auto& [passage, impact] : row) {
      lists.passages_.push_back(passage);
      lists.impacts_.push_back(impact);
    }
    lists.begins_.push_back(static_cast<uint32_t>(lists.passages_.size()));
  }
  return lists;
}

PassageBits::PassageBits(size_t passages, bool value)
    : size_(passages), words_((passages + 63) / 64, value ? ~uint64_t{0} : 0) {
  if (value && passages % 64 != 0) words_.back() >>= 64 - passages % 64;
}

size_t PassageBits::count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

Postings ImpactLists::resident_list(size_t anchor) const {
  const size_t begin = begins_[anchor];
  return {std::span(passages_).subspan(begin, list_size(anchor)),
          std::span(impacts_).subspan(begin, list_size(anchor))};
}

uint64_t ImpactLists::bytes() const {
  return ids_.size() * sizeof(int64_t) + begins_.size() * sizeof(uint32_t) + postings() * 3;
}

void ImpactSums::begin(size_t passages) {
  sums_.assign(passages, 0);
}

void ImpactSums::begin_token() {
  token_.assign(sums_.size(), 0);
}

void ImpactSums::add(const Postings& list, uint32_t factor) {
  uint32_t* sums = sums_.data();
  uint32_t* token = token_.data();
  for (size_t i = 0; i < list.passages.size(); ++i) {
    const size_t passage = list.passages[i];
    const uint32_t value = list.impacts[i] * factor;
    const uint32_t before = token[passage];
    const uint32_t now = std::max(value, before);
    sums[passage] += now - before;
    token[passage] = now;
  }
}

}  // namespace rhapsode::index
