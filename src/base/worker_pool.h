// Threads that do small pieces of work, the urgent ones first, else in the order given.
//
// A pool of one thread, or of none that the system would give, does the work at once, in the call that brings
// it. Ownership: the pool keeps what work captures until it is done; work that nobody has begun when the pool
// goes is dropped. Threads: any may call; work may bring more work, but must not wait for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace rhapsode {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_.empty() ? 1 : static_cast<int>(threads_.size()); }
  void add(std::function<void()> work, bool urgent = false);
  // The same with what the work returns.
  template <class Work>
  std::future<std::invoke_result_t<Work>> run(Work work) {
    using Returned = std::invoke_result_t<Work>;
    auto task = std::make_shared<std::packaged_task<Returned()>>(std::move(work));
    std::future<Returned> result = task->get_future();
    add([task] { (*task)(); });
    return result;
  }

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> urgent_;   // guarded by mutex_
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool stopping_ = false;                      // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace rhapsode
