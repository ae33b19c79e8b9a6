// Pseudo-random numbers that are the same on every machine and compiler: splitmix64.
//
// Threads: one object, one thread. Cost: a few instructions a number.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace rhapsode::eval {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // A stream of its own for each name, so that one part's draws do not move another's.
  Random(uint64_t seed, std::string_view name) : state_(seed) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    next();
  }

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, limit); limit > 0. Draws above the largest multiple of limit are thrown away.
  uint64_t below(uint64_t limit) {
    const uint64_t rest = (UINT64_MAX % limit + 1) % limit;
    uint64_t value = next();
    while (value > UINT64_MAX - rest) value = next();
    return value % limit;
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace rhapsode::eval
