#include "base/worker_pool.h"

#include <system_error>

namespace rhapsode {

WorkerPool::WorkerPool(int threads) {
  if (threads <= 1) return;
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // Fewer then; without any, add() does the work.
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::add(std::function<void()> work, bool urgent) {
  if (threads_.empty()) return work();
  {
    const std::lock_guard lock(mutex_);
    (urgent ? urgent_ : waiting_).push_back(std::move(work));
  }
  changed_.notify_one();
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !urgent_.empty() || !waiting_.empty(); });
    if (stopping_) return;
    std::deque<std::function<void()>>& queue = urgent_.empty() ? waiting_ : urgent_;
    std::function<void()> next = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    next();
    next = nullptr;  // what it captured goes before the next wait
    lock.lock();
  }
}

}  // namespace rhapsode
