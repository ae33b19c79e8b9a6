// Threads that are there for good, one for each device: work on all of them at once.
//
// A lane runs one thing at a time, always on the same thread: what a library keeps by thread (an OpenMP team,
// the current GPU) stays warm, and lanes may wait for one another inside of their work. Threads: run() by one
// at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"

namespace rhapsode::kernels {

class Lanes {
 public:
  // kNoSpace: the system starts no more threads.
  static Result<std::unique_ptr<Lanes>> start(int count);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int count() const { return count_; }
  // work(lane) on every lane; returns when all have done it, with the error of the first lane that has one.
  Status run(const std::function<Status(int)>& work);

 private:
  explicit Lanes(int count) : count_(count), done_(static_cast<size_t>(count)) {}
  void serve(int lane);

  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<Status(int)>* work_ = nullptr;  // guarded by mutex_, as all below but the threads
  uint64_t round_ = 0;
  int left_ = 0;  // lanes that have not done this round's work
  bool stopping_ = false;
  std::vector<Status> done_;
  std::vector<std::thread> threads_;
};

}  // namespace rhapsode::kernels
