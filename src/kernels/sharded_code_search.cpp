#include "kernels/sharded_code_search.h"

#include <algorithm>
#include <numeric>

#include "base/parallel.h"

namespace rhapsode::kernels {

namespace {

class ShardedCodeSearch final : public CodeSearch {
 public:
  explicit ShardedCodeSearch(std::vector<std::unique_ptr<CodeSearch>> shares)
      : shares_(std::move(shares)), loads_(shares_.size()) {}

  Status add(std::span<const CodeRun> passages) override;
  size_t slots() const override { return places_.size(); }
  uint64_t chunks() const override { return std::accumulate(loads_.begin(), loads_.end(), uint64_t{0}); }
  uint64_t device_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& share : shares_) bytes += share->device_bytes();
    return bytes;
  }
  Result<std::vector<std::vector<CodeHit>>> best(std::span<const CodeQuestion> questions,
                                                 std::span<const uint64_t> visible, int count) override;

 private:
  // Where a slot's codes are. Slots of a share that no place names hold what could not be added to all.
  struct Place {
    uint32_t share = 0;
    uint32_t slot = 0;
  };

  template <class Work>
  Status on_shares(const Work& work);

  std::vector<std::unique_ptr<CodeSearch>> shares_;
  std::vector<uint64_t> loads_;  // chunks of each share
  std::vector<Place> places_;    // [slots]
};

// work(i) -> Status for every share, all at once.
template <class Work>
Status ShardedCodeSearch::on_shares(const Work& work) {
  std::vector<Status> done(shares_.size());
  for_each_on_threads(shares_.size(), static_cast<int>(shares_.size()), [&](size_t i) { done[i] = work(i); });
  for (const Status& status : done) RH_TRY_STATUS(status);
  return {};
}

Status ShardedCodeSearch::add(std::span<const CodeRun> passages) {
  std::vector<std::vector<CodeRun>> own(shares_.size());
  std::vector<uint64_t> loads = loads_;
  std::vector<Place> places;
  for (const CodeRun& passage : passages) {
    const auto least = static_cast<size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
    places.push_back(
        {static_cast<uint32_t>(least), static_cast<uint32_t>(shares_[least]->slots() + own[least].size())});
    own[least].push_back(passage);
    loads[least] += static_cast<uint64_t>(std::max(passage.chunks, 0));
  }
  RH_TRY_STATUS(on_shares([&](size_t i) { return own[i].empty() ? Status() : shares_[i]->add(own[i]); }));
  places_.insert(places_.end(), places.begin(), places.end());
  loads_ = std::move(loads);
  return {};
}

Result<std::vector<std::vector<CodeHit>>> ShardedCodeSearch::best(std::span<const CodeQuestion> questions,
                                                                  std::span<const uint64_t> visible,
                                                                  int count) {
  if (visible.size() != (places_.size() + 63) / 64) {
    return make_error(ErrorKind::kInvalidArgument, "{} words of visible passages for {} passages",
                      visible.size(), places_.size());
  }
  std::vector<std::vector<uint64_t>> own;
  for (const auto& share : shares_) own.emplace_back((share->slots() + 63) / 64);
  for (size_t slot = 0; slot < places_.size(); ++slot) {
    if (!(visible[slot / 64] >> (slot % 64) & 1)) continue;
    const Place place = places_[slot];
    own[place.share][place.slot / 64] |= uint64_t{1} << (place.slot % 64);
  }
  std::vector<std::vector<std::vector<CodeHit>>> found(shares_.size());
  const auto find = [&](size_t i) -> Status {
    RH_TRY(found[i], shares_[i]->best(questions, own[i], count));
    return {};
  };
  RH_TRY_STATUS(on_shares(find));
  std::vector<std::vector<CodeHit>> all(questions.size());
  for (size_t q = 0; q < questions.size(); ++q) {
    for (const auto& share : found) all[q].insert(all[q].end(), share[q].begin(), share[q].end());
    std::sort(all[q].begin(), all[q].end(), [](const CodeHit& a, const CodeHit& b) {
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    });
    all[q].resize(std::min(all[q].size(), static_cast<size_t>(count)));
  }
  return all;
}

}  // namespace

std::unique_ptr<CodeSearch> sharded_code_search(std::vector<std::unique_ptr<CodeSearch>> shares) {
  return std::make_unique<ShardedCodeSearch>(std::move(shares));
}

}  // namespace rhapsode::kernels
