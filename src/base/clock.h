// Time as the engine measures it: nanoseconds of the steady clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace rhapsode {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double ms_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-6;
}

}  // namespace rhapsode
