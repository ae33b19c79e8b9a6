#include "kernels/prepared_slabs.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace rhapsode::kernels {

PreparedSlabs::PreparedSlabs(size_t slabs, const Ahead& ahead, Prepare prepare)
    : slabs_(slabs),
      ahead_(ahead.slabs),
      prepare_(std::move(prepare)),
      states_(std::make_unique<std::atomic<State>[]>(slabs)) {
  if (ahead_ == 0) return;
  try {
    for (int i = 0; i < ahead.threads; ++i) threads_.emplace_back([this] { go_ahead(); });
  } catch (const std::system_error&) {
  }
}

PreparedSlabs::~PreparedSlabs() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PreparedSlabs::ready(size_t slab) const {
  return states_[slab].load(std::memory_order_acquire) == State::kReady;
}

bool PreparedSlabs::need(size_t slab) {
  if (slab < wanted_ && ready(slab)) return true;
  std::unique_lock lock(mutex_);
  if (slab >= wanted_) {
    wanted_ = slab + 1;
    changed_.notify_all();
  }
  if (states_[slab] == State::kUntouched) prepare(slab, lock);
  changed_.wait(lock, [&] { return states_[slab] != State::kUnderWay; });
  return states_[slab] == State::kReady;
}

void PreparedSlabs::prepare(size_t slab, std::unique_lock<std::mutex>& lock) {
  states_[slab] = State::kUnderWay;
  lock.unlock();
  const bool prepared = prepare_(slab);
  lock.lock();
  states_[slab].store(prepared ? State::kReady : State::kRefused, std::memory_order_release);
  refused_ = refused_ || !prepared;
  changed_.notify_all();
}

void PreparedSlabs::go_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || refused_ || next_ >= slabs_ || next_ < wanted_ + ahead_; });
    if (stopping_ || refused_ || next_ >= slabs_) return;
    const size_t slab = next_++;
    if (states_[slab] == State::kUntouched) prepare(slab, lock);
  }
}

}  // namespace rhapsode::kernels
