// A team of threads that runs one function at once, the way a graph runs a node: kept alive, joined by a
// spinning barrier, so that a phase of microseconds can be timed. The caller is thread 0. run() from one
// thread at a time.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace rhapsode::bench {

class ThreadTeam {
 public:
  explicit ThreadTeam(int size) : size_(size) {
    for (int ith = 1; ith < size; ++ith) threads_.emplace_back([this, ith] { serve(ith); });
  }
  ~ThreadTeam() {
    stop_ = true;
    generation_.fetch_add(1);
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return size_; }

  // Runs work(ith) on every thread and waits for all of them.
  void run(const std::function<void(int)>& work) {
    work_ = &work;
    waiting_.store(size_ - 1);
    generation_.fetch_add(1);
    work(0);
    while (waiting_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }

 private:
  void serve(int ith) {
    for (int64_t seen = 0;; ++seen) {
      while (generation_.load(std::memory_order_acquire) == seen) std::this_thread::yield();
      if (stop_) return;
      (*work_)(ith);
      waiting_.fetch_sub(1, std::memory_order_release);
    }
  }

  int size_;
  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int64_t> generation_{0};
  std::atomic<int> waiting_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace rhapsode::bench
