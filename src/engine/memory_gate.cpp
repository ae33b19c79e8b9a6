#include "engine/memory_gate.h"

namespace rhapsode::engine {

void MemoryGate::lock() {
  std::unique_lock lock(mutex_);
  ++waiting_alone_;
  changed_.wait(lock, [&] { return !inside_ && outside_ == 0; });
  --waiting_alone_;
  inside_ = true;
}

void MemoryGate::enter_beside() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !inside_ && waiting_alone_ == 0; });
  inside_ = true;
}

void MemoryGate::unlock() {
  {
    const std::lock_guard lock(mutex_);
    inside_ = false;
    ++leaves_;
  }
  changed_.notify_all();
}

void MemoryGate::step_out() {
  {
    const std::lock_guard lock(mutex_);
    inside_ = false;
    ++outside_;
  }
  changed_.notify_all();
}

// Before those that wait to be alone: they wait for this one.
void MemoryGate::step_in() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !inside_; });
  --outside_;
  inside_ = true;
}

bool MemoryGate::wait_for_leave() {
  std::unique_lock lock(mutex_);
  if (outside_ == waiting_room_) return false;
  inside_ = false;
  ++outside_;
  ++waiting_room_;
  changed_.notify_all();
  changed_.wait(lock, [&, seen = leaves_] { return !inside_ && leaves_ != seen; });
  --outside_;
  --waiting_room_;
  inside_ = true;
  return true;
}

}  // namespace rhapsode::engine
