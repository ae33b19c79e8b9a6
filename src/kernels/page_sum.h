// The checksum of a page's bytes, made alike by the host and by a GPU while it copies.
//
//   sum = sum over 8-byte words w_i (little endian) of mixed(w_i + (i + 1) * golden)   mod 2^64
//
// Addition makes it independent of the order, so that any number of threads may share a page; mixed() is a
// bijection, so that a single damaged word is always noticed, and two with 2^-64. It guards against
// accidents, not against anybody. `bytes` is a multiple of 8. Cost: two multiplications a word.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rhapsode::kernels {

// The finaliser of SplitMix64.
constexpr uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// What word number `i` adds.
constexpr uint64_t word_sum(uint64_t word, uint64_t i) {
  return mixed(word + (i + 1) * 0x9E3779B97F4A7C15ull);
}

inline uint64_t page_sum(std::span<const std::byte> page) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t sum = 0;
  for (size_t i = 0; i * sizeof(uint64_t) < page.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, page.data() + i * sizeof(uint64_t), sizeof word);
    sum += word_sum(word, i);
  }
  return sum;
}

}  // namespace rhapsode::kernels
