// Work on several threads: fewer when the system has no more to give. Threads: blocks until all are done.
#pragma once

#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace rhapsode {

// Runs work() on the caller and up to threads - 1 more.
template <class Work>
void run_on_threads(int threads, const Work& work) {
  std::vector<std::thread> others;
  try {
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
  } catch (const std::system_error&) {
  }
  work();
  for (std::thread& other : others) other.join();
}

// Calls work(i) once for each i below count, in no order.
template <class Work>
void for_each_on_threads(size_t count, int threads, const Work& work) {
  std::atomic<size_t> next{0};
  const int most = count < static_cast<size_t>(threads) ? static_cast<int>(count) : threads;
  run_on_threads(most, [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  });
}

// Runs work() on the caller while another thread runs beside(); one after the other where there is none.
template <class Beside, class Work>
void run_beside(const Beside& beside, const Work& work) {
  std::thread other;
  try {
    other = std::thread(beside);
  } catch (const std::system_error&) {
    beside();
  }
  work();
  if (other.joinable()) other.join();
}

}  // namespace rhapsode
