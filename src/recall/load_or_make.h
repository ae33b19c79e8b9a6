// Load or make: which passages of a batch have their stored KV read, and which are made from text meanwhile.
//
// Reading takes threads of the host and the bus, making takes the GPU, so both go on at once over one batch:
// threads read it from the front, what makes takes some from the back, until they meet. Each takes only what
// it is expected to have done before the other would, by how fast either was on this machine so far: bytes of
// the system's page cache that a thread reads in a second, bytes that the disk gives in a second to all
// threads together, and tokens made in a second. Threads share a disk: a few read from it at a time
// (kMostFromDisk, and kFirstFromDisk until it is known), since more would only all be late. What lies in the
// page cache is in front, so the slow ones are made. Nothing is made for a small gain (kClearlyFaster), and
// nothing is read that takes longer than making all that is left; in every eighth batch some of both is done
// all the same, so that a rate that was bad once is not believed for ever.
//
// Threads: any, and of LoadOrMake as many as read. Errors: none. Cost: next_to_make() walks what is left,
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace rhapsode::recall {

// How much is done in a second: the latest measurements and the large ones count most, so that a first one
// that was mostly overhead is soon forgotten.
class MeasuredRate {
 public:
  // `keep`: what is left of a measurement's weight when the next one comes.
  explicit MeasuredRate(double keep = 0.75) : keep_(keep) {}
  void add(double amount, double seconds);
  bool known() const { return weight_ > 0; }
  double seconds(double amount) const { return amount * weight_ / weighted_rates_; }

 private:
  double keep_;
  double weight_ = 0;  // sum of amounts
  double weighted_rates_ = 0;
};

// How much one thing does in a second for all who use it: what it did over the time it was busy, the latest
// counting most.
class SharedRate {
 public:
  void add(double amount, double busy_seconds);
  bool known() const { return seconds_ > 0; }
  double seconds(double amount) const { return amount * seconds_ / amount_; }

 private:
  double amount_ = 0;
  double seconds_ = 0;
};

struct StoredKv {
  uint64_t bytes = 0;
  int tokens = 0;
  bool cached = false;  // in the system's page cache
};

// What one machine and model were seen to do.
struct KvSpeeds {
  MeasuredRate cached{0.95};  // bytes of one thread, a passage at a time
  SharedRate disk;            // bytes
  MeasuredRate text;          // tokens

  bool knows(const StoredKv& passage) const { return passage.cached ? cached.known() : disk.known(); }
};

// The same, shared. Any thread.
class KvRates {
 public:
  // By one of the threads, from when to when; by those that end first, first.
  void loaded(const StoredKv& passage, int64_t begin_ns, int64_t end_ns);
  // The first one does not count: it loads kernels, and makes what is kept from then on.
  void made(int tokens, double seconds);
  KvSpeeds now() const;
  // Counts batches: whether this one does some of both, against what is known.
  bool probes_next();

 private:
  mutable std::mutex mutex_;
  KvSpeeds speeds_;          // guarded by mutex_
  int64_t disk_end_ns_ = 0;  // of the last that came from the disk; guarded by mutex_
  bool warm_ = false;        // something was made before; guarded by mutex_
  uint64_t batches_ = 0;     // guarded by mutex_
};

// One batch. Passages are named by their place in `passages`.
class LoadOrMake {
 public:
  // Below so many passages nothing is made to learn how fast that is.
  static constexpr size_t kSmallestBatch = 8;
  // The less likely way has to take less than so much of the other's time.
  static constexpr double kClearlyFaster = 0.8;
  // Threads that read from the disk at a time while somebody makes; before it is known how fast it is.
  static constexpr size_t kMostFromDisk = 4;
  static constexpr size_t kFirstFromDisk = 2;

  // `threads` read; `may_make`: false gives everything to them.
  LoadOrMake(KvRates& rates, std::span<const StoredKv> passages, int threads, bool may_make);

  // What a thread is to read now, in `passages`; as many as there are: nothing more for this thread.
  size_t next_to_load();
  // A thread is done with what it took.
  void loaded(size_t passage);
  // What to make now, all in one go; none: nothing more, as far as it is known now.
  std::vector<size_t> next_to_make();
  // Nobody takes anything more.
  void stop();

 private:
  // [so many + 1] seconds until the first so many of what is left are read; none when that is not known.
  std::vector<double> load_seconds(const KvSpeeds& speeds) const;
  size_t worth_making() const;
  bool worth_loading() const;
  const StoredKv& at(size_t place) const { return passages_[order_[place]]; }

  KvRates& rates_;
  const std::span<const StoredKv> passages_;
  const size_t threads_;
  std::vector<size_t> order_;  // of passages: the first to be read first
  std::mutex mutex_;
  bool probes_loading_;      // guarded by mutex_
  bool probes_making_;       // guarded by mutex_
  bool making_;              // who makes may come again; guarded by mutex_
  bool declined_ = false;    // a thread left something to who makes; guarded by mutex_
  size_t front_ = 0;         // places in order_ from here on nobody took; guarded by mutex_
  size_t back_;              // up to here; guarded by mutex_
  int64_t tokens_left_ = 0;  // of those; guarded by mutex_
  size_t from_disk_ = 0;     // being read; guarded by mutex_
  uint64_t disk_bytes_ = 0;  // of those; guarded by mutex_
};

}  // namespace rhapsode::recall
