#include "recall/device_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "index/scan_question.h"

namespace rhapsode::recall {

namespace {

constexpr uint32_t kNoSlot = UINT32_MAX;  // a passage without codes
constexpr size_t kToleratedSlots = 4096;  // of passages that are gone, however few others there are

uint64_t sample_of(const index::PassageCodes& passage, size_t code_bytes) {
  if (passage.chunks == 0) return 0;
  const size_t bytes = static_cast<size_t>(passage.chunks) * code_bytes;
  uint64_t first = 0;
  uint64_t last = 0;
  std::memcpy(&first, passage.codes, sizeof first);
  std::memcpy(&last, passage.codes + bytes - sizeof last, sizeof last);
  return first ^ std::rotl(last, 17) ^ static_cast<uint64_t>(passage.chunks);
}

}  // namespace

void DeviceCodes::distrust() {
  for (Known& known : known_) known.trusted = false;
  has_everything_ = false;
}

Status DeviceCodes::start_anew() {
  known_.clear();
  search_.reset();  // before the next one takes its memory
  RH_TRY(search_, maker_(dimensions_));
  return {};
}

// Gives the passages slots; they replace what is known of the same ids.
Status DeviceCodes::add(std::span<const index::PassageCodes> passages) {
  const size_t code_bytes = static_cast<size_t>(dimensions_ + 63) / 64 * sizeof(uint64_t);
  std::vector<kernels::CodeRun> runs;
  std::vector<Known> fresh;
  auto slot = static_cast<uint32_t>(search_->slots());
  for (const index::PassageCodes& passage : passages) {
    const uint64_t sample = sample_of(passage, code_bytes);
    const auto known = std::lower_bound(known_.begin(), known_.end(), passage.id,
                                        [](const Known& one, int64_t id) { return one.id < id; });
    const bool here = known != known_.end() && known->id == passage.id;
    if (here && known->sample == sample) {
      known->trusted = true;
      continue;
    }
    const Known now{passage.id, sample, passage.chunks > 0 ? slot++ : kNoSlot, true};
    if (passage.chunks > 0) runs.push_back({passage.id, passage.codes, passage.chunks});
    if (here) {
      *known = now;
    } else {
      fresh.push_back(now);
    }
  }
  const auto middle = static_cast<std::ptrdiff_t>(known_.size());
  known_.insert(known_.end(), fresh.begin(), fresh.end());
  std::inplace_merge(known_.begin(), known_.begin() + middle, known_.end(),
                     [](const Known& a, const Known& b) { return a.id < b.id; });
  return search_->add(runs);
}

// Makes the allowed passages known and trusted.
Status DeviceCodes::bring(std::span<const int64_t> allowed, index::CodeSource& codes) {
  if (search_ == nullptr) RH_TRY_STATUS(start_anew());
  std::vector<int64_t> wanted;
  auto known = known_.begin();
  for (const int64_t id : allowed) {
    while (known != known_.end() && known->id < id) ++known;
    if (known == known_.end() || known->id != id || !known->trusted) wanted.push_back(id);
  }
  if (wanted.empty()) return {};
  RH_TRY(const std::vector<index::PassageCodes> passages, codes.codes(wanted));
  return add(passages);
}

std::vector<uint64_t> DeviceCodes::bits_of(std::span<const int64_t> allowed) const {
  std::vector<uint64_t> bits((search_->slots() + 63) / 64);
  auto known = known_.begin();
  for (const int64_t id : allowed) {
    while (known != known_.end() && known->id < id) ++known;
    if (known == known_.end()) break;
    if (known->id == id && known->slot != kNoSlot)
      bits[known->slot / 64] |= uint64_t{1} << (known->slot % 64);
  }
  return bits;
}

Result<std::vector<index::ScanHit>> DeviceCodes::best(const index::QuestionVectors& question,
                                                      std::span<const int64_t> allowed, bool everything,
                                                      index::CodeSource& codes, int count) {
  if (!everything || !has_everything_) {
    RH_TRY_STATUS(bring(allowed, codes));
    if (everything && search_->slots() > 2 * allowed.size() + kToleratedSlots) {
      RH_TRY_STATUS(start_anew());
      RH_TRY_STATUS(bring(allowed, codes));
    }
  }
  std::vector<uint64_t> some;
  if (!everything) {
    some = bits_of(allowed);
  } else if (!has_everything_) {
    everything_ = bits_of(allowed);
    has_everything_ = true;
  }
  everything_.resize((search_->slots() + 63) / 64);  // other questions may have brought more
  const index::FourBitQuestion four_bits(question);
  std::vector<double> factors;
  for (size_t t = 0; t < question.weights.size(); ++t) {
    factors.push_back(static_cast<double>(question.weights[t]) * static_cast<double>(four_bits.scales[t]));
  }
  std::vector<index::ScanHit> hits;
  if (count < 1 || four_bits.tokens == 0) return hits;
  const kernels::CodeQuestion asked{four_bits.tokens, four_bits.levels, factors};
  RH_TRY(const std::vector<std::vector<kernels::CodeHit>> found,
         search_->best({&asked, 1}, everything ? everything_ : some, count));
  for (const kernels::CodeHit& hit : found.front()) hits.push_back({hit.id, hit.score});
  return hits;
}

}  // namespace rhapsode::recall
