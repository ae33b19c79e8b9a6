#include "recall/load_or_make.h"

#include <algorithm>
#include <numeric>

namespace rhapsode::recall {

namespace {

// Of a batch, passages that are made to learn how fast that is: enough for a pass that is not all overhead.
constexpr size_t kSampleOneIn = 6;
constexpr size_t kLeastSamples = 2;
// Made in one go: about what a pass takes. Then it is seen how far reading has come.
constexpr int kMostTokensAtOnce = 8192;
constexpr uint64_t kProbeOneIn = 8;

}  // namespace

void MeasuredRate::add(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return;
  weight_ = keep_ * weight_ + amount;
  weighted_rates_ = keep_ * weighted_rates_ + amount * (amount / seconds);
}

void KvRates::loaded(const StoredKv& passage, double seconds) {
  std::lock_guard lock(mutex_);
  (passage.cached ? speeds_.cached : speeds_.disk).add(static_cast<double>(passage.bytes), seconds);
}

void KvRates::made(int tokens, double seconds) {
  std::lock_guard lock(mutex_);
  if (warm_) speeds_.text.add(tokens, seconds);
  warm_ = true;
}

KvSpeeds KvRates::now() const {
  std::lock_guard lock(mutex_);
  return speeds_;
}

bool KvRates::probes_next() {
  std::lock_guard lock(mutex_);
  return ++batches_ % kProbeOneIn == 0;
}

LoadOrMake::LoadOrMake(KvRates& rates, std::span<const StoredKv> passages, int threads, bool may_make)
    : rates_(rates),
      passages_(passages),
      threads_(static_cast<size_t>(threads)),
      order_(passages.size()),
      probes_loading_(may_make && passages.size() >= kSmallestBatch && rates.probes_next()),
      probes_making_(probes_loading_),
      making_(may_make),
      back_(passages.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_partition(order_.begin(), order_.end(), [&](size_t i) { return passages_[i].cached; });
  for (const StoredKv& passage : passages_) tokens_left_ += passage.tokens;
}

size_t LoadOrMake::next_to_load() {
  std::lock_guard lock(mutex_);
  if (front_ == back_) return passages_.size();
  if (!probes_loading_ && making_ && !worth_loading()) {
    declined_ = true;
    return passages_.size();
  }
  probes_loading_ = false;
  tokens_left_ -= at(front_).tokens;
  return order_[front_++];
}

std::vector<size_t> LoadOrMake::next_to_make() {
  std::lock_guard lock(mutex_);
  std::vector<size_t> chosen;
  int tokens = 0;
  for (size_t count = making_ ? worth_making() : 0; count > 0; --count) {
    tokens += at(back_ - 1).tokens;
    if (!chosen.empty() && tokens > kMostTokensAtOnce) break;
    tokens_left_ -= at(back_ - 1).tokens;
    chosen.push_back(order_[--back_]);
  }
  probes_making_ = false;
  making_ = !chosen.empty();
  return chosen;
}

void LoadOrMake::stop() {
  std::lock_guard lock(mutex_);
  back_ = front_;
}

std::vector<double> LoadOrMake::load_seconds(const KvSpeeds& speeds) const {
  std::vector<double> ends{0};
  double sum = 0, longest = 0;
  for (size_t place = front_; place < back_; ++place) {
    const MeasuredRate& rate = speeds.of(at(place));
    if (!rate.known()) return {};
    const double seconds = rate.seconds(static_cast<double>(at(place).bytes));
    sum += seconds;
    longest = std::max(longest, seconds);
    ends.push_back(std::max(longest, sum / static_cast<double>(std::min(ends.size(), threads_))));
  }
  return ends;
}

size_t LoadOrMake::worth_making() const {
  const size_t left = back_ - front_;
  if (left == 0) return 0;
  const KvSpeeds speeds = rates_.now();
  const std::vector<double> loaded = load_seconds(speeds);
  if (declined_) return left;
  if (probes_making_ || loaded.empty() || !speeds.text.known()) {
    if (passages_.size() < kSmallestBatch) return 0;
    return std::min(left, std::max(kLeastSamples, left / kSampleOneIn));
  }
  size_t count = 0;
  double end = loaded[left];
  int64_t tokens = 0;
  for (size_t more = 1; more <= left; ++more) {
    tokens += at(back_ - more).tokens;
    const double made = speeds.text.seconds(static_cast<double>(tokens));
    if (made > loaded[left - more + 1]) break;
    count = more;
    end = std::max(made, loaded[left - more]);
  }
  return end < kClearlyFaster * loaded[left] ? count : 0;
}

bool LoadOrMake::worth_loading() const {
  const KvSpeeds speeds = rates_.now();
  const MeasuredRate& load = speeds.of(at(front_));
  if (!load.known() || !speeds.text.known()) return true;
  return speeds.text.seconds(static_cast<double>(tokens_left_)) >=
         kClearlyFaster * load.seconds(static_cast<double>(at(front_).bytes));
}

}  // namespace rhapsode::recall
