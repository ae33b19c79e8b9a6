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
constexpr double kKeepOfDisk = 0.95;

}  // namespace

void MeasuredRate::add(double amount, double seconds) {
  if (amount <= 0 || seconds <= 0) return;
  weight_ = keep_ * weight_ + amount;
  weighted_rates_ = keep_ * weighted_rates_ + amount * (amount / seconds);
}

void SharedRate::add(double amount, double busy_seconds) {
  if (amount <= 0 || busy_seconds < 0) return;
  amount_ = kKeepOfDisk * amount_ + amount;
  seconds_ = kKeepOfDisk * seconds_ + busy_seconds;
}

void KvRates::loaded(const StoredKv& passage, int64_t begin_ns, int64_t end_ns) {
  std::lock_guard lock(mutex_);
  const auto bytes = static_cast<double>(passage.bytes);
  if (passage.cached) {
    speeds_.cached.add(bytes, static_cast<double>(end_ns - begin_ns) * 1e-9);
    return;
  }
  // What others read meanwhile took its part of the same time.
  const int64_t since = std::max(begin_ns, disk_end_ns_);
  speeds_.disk.add(bytes, static_cast<double>(std::max<int64_t>(end_ns - since, 0)) * 1e-9);
  disk_end_ns_ = std::max(disk_end_ns_, end_ns);
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
  const StoredKv& passage = at(front_);
  if (!passage.cached) {
    const size_t most = rates_.now().disk.known() ? kMostFromDisk : kFirstFromDisk;
    if (making_ && from_disk_ >= most) return passages_.size();  // those that read come again
    ++from_disk_;
    disk_bytes_ += passage.bytes;
  }
  probes_loading_ = false;
  tokens_left_ -= passage.tokens;
  return order_[front_++];
}

void LoadOrMake::loaded(size_t passage) {
  std::lock_guard lock(mutex_);
  if (passages_[passage].cached) return;
  --from_disk_;
  disk_bytes_ -= passages_[passage].bytes;
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
  double cached = 0, longest = 0;                // seconds of one thread
  auto disk = static_cast<double>(disk_bytes_);  // bytes
  for (size_t place = front_; place < back_; ++place) {
    const StoredKv& passage = at(place);
    if (!speeds.knows(passage)) return {};
    const auto bytes = static_cast<double>(passage.bytes);
    if (passage.cached) {
      cached += speeds.cached.seconds(bytes);
      longest = std::max(longest, speeds.cached.seconds(bytes));
    } else {
      disk += bytes;
    }
    const double by_threads =
        std::max(longest, cached / static_cast<double>(std::min(ends.size(), threads_)));
    ends.push_back(by_threads + (passage.cached ? 0 : speeds.disk.seconds(disk)));
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
  const StoredKv& passage = at(front_);
  if (!speeds.knows(passage) || !speeds.text.known()) return true;
  const double loaded = passage.cached
                            ? speeds.cached.seconds(static_cast<double>(passage.bytes))
                            : speeds.disk.seconds(static_cast<double>(disk_bytes_ + passage.bytes));
  return speeds.text.seconds(static_cast<double>(tokens_left_)) >= kClearlyFaster * loaded;
}

}  // namespace rhapsode::recall
