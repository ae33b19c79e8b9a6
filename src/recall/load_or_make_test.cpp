#include "recall/load_or_make.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>

namespace rhapsode::recall {
namespace {

// A machine whose clock is ours: what it does takes as long as it says.
struct Machine {
  double cached_bytes_per_s = 2e9;  // of one thread
  double disk_bytes_per_s = 4e9;    // of all together
  double tokens_per_s = 500'000;
  double pass_s = 2e-3;  // what making some takes besides
  int threads = 8;
  mutable double now_s = 0;  // when the next batch begins

  // Alone.
  double load_s(const StoredKv& passage) const {
    return static_cast<double>(passage.bytes) / (passage.cached ? cached_bytes_per_s : disk_bytes_per_s);
  }
};

struct Outcome {
  double seconds = 0;
  size_t read = 0;
  size_t made = 0;
};

constexpr int kTokens = 480;
constexpr uint64_t kBytes = 6'000'000;

std::vector<StoredKv> passages(size_t count, bool cached) {
  return std::vector<StoredKv>(count, StoredKv{kBytes, kTokens, cached});
}

// One batch, event after event. What nobody took is made at the end.
class Race {
 public:
  Race(const Machine& machine, KvRates& rates, std::span<const StoredKv> batch)
      : machine_(machine), rates_(rates), batch_(batch), choice_(rates, batch, machine.threads, true) {}

  Outcome run() {
    std::vector<double> readers(static_cast<size_t>(machine_.threads), 0);
    std::vector<std::optional<size_t>> reading(readers.size());
    std::vector<double> begun(readers.size(), 0);
    double disk = 0;  // has given all that it was asked for
    double maker = 0;
    std::vector<size_t> making;
    std::vector<bool> reads(readers.size(), true);
    bool makes = true;
    while (makes || std::find(reads.begin(), reads.end(), true) != reads.end()) {
      // Whoever is done first goes on.
      size_t next = readers.size();
      for (size_t r = 0; r < readers.size(); ++r) {
        if (reads[r] && (next == readers.size() || readers[r] < readers[next])) next = r;
      }
      if (makes && (next == readers.size() || maker < readers[next])) {
        if (!making.empty()) rates_.made(static_cast<int>(making.size()) * kTokens, maker - made_from_);
        making = choice_.next_to_make();
        makes = !making.empty();
        made_from_ = maker;
        if (makes) maker += make(making);
        continue;
      }
      if (reading[next]) {
        choice_.loaded(*reading[next]);
        rates_.loaded(batch_[*reading[next]], in_ns(machine_.now_s + begun[next]),
                      in_ns(machine_.now_s + readers[next]));
      }
      const size_t taken = choice_.next_to_load();
      reads[next] = taken < batch_.size();
      reading[next].reset();
      if (!reads[next]) continue;
      EXPECT_TRUE(taken_.insert(taken).second);
      ++outcome_.read;
      reading[next] = taken;
      begun[next] = readers[next];
      double& busy = batch_[taken].cached ? readers[next] : disk;
      busy = std::max(busy, readers[next]) + machine_.load_s(batch_[taken]);
      readers[next] = busy;
    }
    const size_t left = batch_.size() - taken_.size();
    outcome_.seconds = std::max(maker, *std::max_element(readers.begin(), readers.end()));
    if (left > 0) outcome_.seconds += make_s(left);
    outcome_.made += left;
    machine_.now_s += outcome_.seconds;
    return outcome_;
  }

 private:
  static int64_t in_ns(double seconds) { return std::llround(seconds * 1e9); }
  double make_s(size_t count) const {
    return machine_.pass_s + static_cast<double>(count) * kTokens / machine_.tokens_per_s;
  }
  double make(const std::vector<size_t>& some) {
    for (const size_t i : some) EXPECT_TRUE(taken_.insert(i).second);
    outcome_.made += some.size();
    return make_s(some.size());
  }

  const Machine& machine_;
  KvRates& rates_;
  std::span<const StoredKv> batch_;
  LoadOrMake choice_;
  std::set<size_t> taken_;
  Outcome outcome_;
  double made_from_ = 0;
};

Outcome run(const Machine& machine, KvRates& rates, const std::vector<StoredKv>& batch) {
  return Race(machine, rates, batch).run();
}

// All of them in the page cache, or all on the disk.
double all_read_s(const Machine& machine, const std::vector<StoredKv>& batch) {
  double sum = 0, longest = 0;
  for (const StoredKv& passage : batch) {
    sum += machine.load_s(passage);
    longest = std::max(longest, machine.load_s(passage));
  }
  if (!batch.front().cached) return sum;
  return std::max(longest, sum / std::min<double>(machine.threads, static_cast<double>(batch.size())));
}

double all_made_s(const Machine& machine, const std::vector<StoredKv>& batch) {
  return machine.pass_s + static_cast<double>(batch.size()) * kTokens / machine.tokens_per_s;
}

// The faster way, or both where that is faster still, on both sides of the break-even.
TEST(LoadOrMake, NeverTakesMuchLongerThanTheFasterWay) {
  for (const bool cached : {true, false}) {
    const std::vector<StoredKv> batch = passages(55, cached);
    for (double factor = 1.0 / 32; factor <= 32; factor *= 1.3) {
      Machine machine;
      machine.cached_bytes_per_s *= factor;
      machine.disk_bytes_per_s *= factor;
      KvRates rates;
      for (int i = 0; i < 4; ++i) run(machine, rates, batch);
      const Outcome outcome = run(machine, rates, batch);
      const double faster = std::min(all_read_s(machine, batch), all_made_s(machine, batch));
      EXPECT_EQ(outcome.read + outcome.made, batch.size());
      // A passage that is just being read is waited for, and what is made goes in passes.
      EXPECT_LE(outcome.seconds, 1.02 * faster + machine.load_s(batch[0]) + machine.pass_s)
          << cached << ' ' << factor << ": " << outcome.read << " read, " << outcome.made << " made";
    }
  }
}

// Sixteen threads that all read from one disk would all be late.
TEST(LoadOrMake, ASlowDiskHoldsUpNoMoreThanAFewPassages) {
  const std::vector<StoredKv> batch = passages(55, false);
  Machine machine;
  machine.threads = 16;
  machine.disk_bytes_per_s = 5e8;  // 0.66 s in all, where making takes 0.055
  KvRates rates;
  const double few_s = LoadOrMake::kFirstFromDisk * machine.load_s(batch[0]);
  const double sample_s = machine.pass_s + 9 * kTokens / machine.tokens_per_s;
  EXPECT_LE(run(machine, rates, batch).seconds, 1.3 * all_made_s(machine, batch) + few_s + sample_s);
  for (int i = 0; i < 5; ++i) {
    EXPECT_LE(run(machine, rates, batch).seconds, 1.02 * all_made_s(machine, batch) + few_s) << i;
  }
}

// Nothing is known of the first batch; then what is read and made of it tells more and more.
TEST(LoadOrMake, TheFirstBatchIsNotFarFromThatEither) {
  for (const bool cached : {true, false}) {
    const std::vector<StoredKv> batch = passages(55, cached);
    for (double factor = 1.0 / 32; factor <= 32; factor *= 1.3) {
      Machine machine;
      machine.cached_bytes_per_s *= factor;
      machine.disk_bytes_per_s *= factor;
      KvRates rates;
      const Outcome outcome = run(machine, rates, batch);
      const double sample_s = machine.pass_s + 9 * kTokens / machine.tokens_per_s;
      const double faster = std::min(all_read_s(machine, batch), all_made_s(machine, batch));
      EXPECT_LE(outcome.seconds, 1.3 * faster + 2 * machine.load_s(batch[0]) + sample_s)
          << factor << ": " << outcome.read << " read, " << outcome.made << " made";
    }
  }
}

TEST(LoadOrMake, ReadsAllWhereTextIsMuchSlowerAndMakesAllWhereItIsMuchFaster) {
  const std::vector<StoredKv> batch = passages(55, false);
  Machine slow_text;
  slow_text.tokens_per_s = 5000;
  slow_text.disk_bytes_per_s = 16e9;
  Machine slow_disk;
  slow_disk.disk_bytes_per_s = 32e6;
  KvRates text_loses, disk_loses;
  for (int i = 0; i < 3; ++i) {
    run(slow_text, text_loses, batch);
    run(slow_disk, disk_loses, batch);
  }
  EXPECT_EQ(run(slow_text, text_loses, batch).read, batch.size());
  EXPECT_EQ(run(slow_disk, disk_loses, batch).made, batch.size());
}

TEST(LoadOrMake, DoesBothAtOnceWhereThatIsFaster) {
  const std::vector<StoredKv> batch = passages(55, true);
  Machine machine;
  machine.cached_bytes_per_s = kBytes * machine.tokens_per_s / kTokens / machine.threads;  // equal
  KvRates rates;
  for (int i = 0; i < 4; ++i) run(machine, rates, batch);
  const Outcome outcome = run(machine, rates, batch);
  EXPECT_LT(outcome.seconds, 0.75 * std::min(all_read_s(machine, batch), all_made_s(machine, batch)));
  EXPECT_GT(outcome.read, batch.size() / 4);
  EXPECT_GT(outcome.made, batch.size() / 4);
}

TEST(LoadOrMake, WhatIsInThePageCacheIsReadAndWhatIsOnASlowDiskIsMade) {
  std::vector<StoredKv> batch = passages(40, true);
  for (size_t i = 0; i < batch.size(); i += 2) batch[i].cached = false;
  Machine machine;
  machine.disk_bytes_per_s = 16e7;
  KvRates rates;
  for (int i = 0; i < 5; ++i) run(machine, rates, batch);
  LoadOrMake choice(rates, batch, 1, true);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(batch[choice.next_to_load()].cached);
  const std::vector<size_t> made = choice.next_to_make();
  EXPECT_GE(made.size(), 10u);
  for (const size_t i : made) EXPECT_FALSE(batch[i].cached);
}

TEST(LoadOrMake, BeforeAnythingIsKnownASixthIsMade) {
  KvRates rates;
  const std::vector<StoredKv> batch = passages(12, true);
  LoadOrMake choice(rates, batch, 8, true);
  EXPECT_EQ(choice.next_to_make().size(), 2u);
  EXPECT_EQ(choice.next_to_load(), 0u);
  const std::vector<StoredKv> few = passages(LoadOrMake::kSmallestBatch - 1, true);
  EXPECT_TRUE(LoadOrMake(rates, few, 8, true).next_to_make().empty());
  EXPECT_TRUE(LoadOrMake(rates, batch, 8, /*may_make=*/false).next_to_make().empty());
}

// A disk that was slow once is looked at again.
TEST(LoadOrMake, FindsOutThatADiskHasBecomeFast) {
  const std::vector<StoredKv> batch = passages(55, false);
  Machine machine;
  machine.disk_bytes_per_s = 32e6;
  KvRates rates;
  for (int i = 0; i < 3; ++i) run(machine, rates, batch);
  machine.disk_bytes_per_s = 40e9;
  size_t read = 0;
  for (int i = 0; i < 400 && read < 40; ++i) read = run(machine, rates, batch).read;
  EXPECT_GE(read, 40u);
}

TEST(LoadOrMake, StoppedGivesNothingMore) {
  KvRates rates;
  const std::vector<StoredKv> batch = passages(12, true);
  LoadOrMake choice(rates, batch, 8, true);
  choice.stop();
  EXPECT_EQ(choice.next_to_load(), batch.size());
  EXPECT_TRUE(choice.next_to_make().empty());
}

// Two that are read at once take the disk's time together, not each for itself.
TEST(KvRates, ADiskIsMeasuredByWhatItGivesToAll) {
  KvRates rates;
  const StoredKv passage{1'000'000, kTokens, /*cached=*/false};
  rates.loaded(passage, 0, 10'000'000);
  EXPECT_DOUBLE_EQ(rates.now().disk.seconds(1e6), 0.01);
  rates.loaded(passage, 10'000'000, 30'000'000);
  rates.loaded(passage, 10'000'000, 30'000'000);
  rates.loaded(passage, 50'000'000, 60'000'000);  // nobody asked for anything in between
  EXPECT_NEAR(rates.now().disk.seconds(1e6), 0.01, 5e-4);
  EXPECT_FALSE(rates.now().cached.known());
}

TEST(MeasuredRate, FollowsWhatItIsTold) {
  MeasuredRate rate;
  EXPECT_FALSE(rate.known());
  rate.add(0, 1);
  rate.add(10, 0);
  EXPECT_FALSE(rate.known());
  rate.add(100, 1);
  EXPECT_DOUBLE_EQ(rate.seconds(50), 0.5);
  for (int i = 0; i < 40; ++i) rate.add(400, 1);
  EXPECT_NEAR(rate.seconds(400), 1, 0.01);
}

}  // namespace
}  // namespace rhapsode::recall
