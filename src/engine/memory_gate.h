// Who may work on a memory: one call at a time, except that answers are told beside one another.
//
// A call that changes the memory enters alone: no other call is inside, and no answer is being told that read
// what it changes. A call that reads enters beside answers. While its answer is being generated, an ask
// steps outside: others get in, and what reads is not held up by a long answer. Those that wait to be alone
// go before calls that came later, so that a busy memory can still be written to. An answer holds pages until
// its ask leaves: who finds no room for its own lets go of them and waits for one that does. Threads: any;
// who entered leaves. Cost: a mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace rhapsode::engine {

class MemoryGate {
 public:
  // Alone. These names are those of std::lock_guard.
  void lock();
  void unlock();

  void enter_beside();
  // Between them the caller is outside, and whoever wants to be alone waits for its return.
  void step_out();
  void step_in();
  // From inside, holding nothing that others wait for: waits outside until somebody has left. False at once
  // when nobody else is being told an answer, so that nothing would change.
  bool wait_for_leave();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool inside_ = false;
  int outside_ = 0;       // answers being told, and those below
  int waiting_room_ = 0;  // wait for somebody to leave
  uint64_t leaves_ = 0;
  int waiting_alone_ = 0;
};

// Inside, beside answers that are being told, for as long as it lives.
class BesideAnswers {
 public:
  explicit BesideAnswers(MemoryGate& gate) : gate_(gate) { gate_.enter_beside(); }
  ~BesideAnswers() { gate_.unlock(); }
  BesideAnswers(const BesideAnswers&) = delete;
  BesideAnswers& operator=(const BesideAnswers&) = delete;

 private:
  MemoryGate& gate_;
};

// Outside for as long as it lives; made by a call that entered beside answers.
class SteppedOut {
 public:
  explicit SteppedOut(MemoryGate& gate) : gate_(gate) { gate_.step_out(); }
  ~SteppedOut() { gate_.step_in(); }
  SteppedOut(const SteppedOut&) = delete;
  SteppedOut& operator=(const SteppedOut&) = delete;

 private:
  MemoryGate& gate_;
};

}  // namespace rhapsode::engine
