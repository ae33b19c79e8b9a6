// Slabs of a region that take their time to be made ready, each once: ahead of their use by threads of their
// own, else by whoever needs one first.
//
// The threads begin with the first slab and stay `ahead` slabs in front of the highest one needed so far;
// they end with the last slab or the first refusal. Slabs are meant to be needed in ascending order.
// Ownership: calls `prepare` until the destructor returns, which waits for slabs under way and for no others.
// Threads: need() by any number, for different slabs at once. Errors: a slab that was refused stays refused.
// Cost: a ready slab costs need() two atomic loads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rhapsode::kernels {

class PreparedSlabs {
 public:
  // False: refused. Called once a slab, for several slabs by as many threads.
  using Prepare = std::function<bool(size_t slab)>;

  struct Ahead {
    size_t slabs = 0;
    int threads = 1;
  };
  PreparedSlabs(size_t slabs, const Ahead& ahead, Prepare prepare);
  ~PreparedSlabs();
  PreparedSlabs(const PreparedSlabs&) = delete;
  PreparedSlabs& operator=(const PreparedSlabs&) = delete;

  // Whether the slab is ready; waits for whoever is at it, or does it itself.
  bool need(size_t slab);
  bool ready(size_t slab) const;
  size_t slabs() const { return slabs_; }

 private:
  enum class State : uint8_t { kUntouched, kUnderWay, kReady, kRefused };
  void go_ahead();
  // Prepares a slab of which the caller has just become the owner; `lock` is let go meanwhile.
  void prepare(size_t slab, std::unique_lock<std::mutex>& lock);

  const size_t slabs_;
  const size_t ahead_;  // slabs
  const Prepare prepare_;
  std::unique_ptr<std::atomic<State>[]> states_;  // [slabs]; changed under mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<size_t> wanted_{0};     // one behind the highest slab needed; changed under mutex_
  size_t next_ = 0;                   // that the threads look at; guarded by mutex_
  bool refused_ = false;              // any; guarded by mutex_
  bool stopping_ = false;             // guarded by mutex_
  std::vector<std::thread> threads_;  // fewer where the system gives no more: need() does everything then
};

}  // namespace rhapsode::kernels
