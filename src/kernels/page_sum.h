// The checksum of a page's bytes, made alike by the host and by a GPU while it copies.
//
//   sum = sum over 8-byte words w_i (little endian) of w_i + low(x_i) high(x_i)   mod 2^64
//   x_i = w_i xor (i + 1) kPageSumStep;  low, high: its halves of 32 bits
//
// Addition makes it independent of the order, so that any number of threads and lanes may share a page, and
// one product of halves a word is what vector units and GPUs multiply fastest. Of damaged pages it misses one
// in about 2^32. It guards against accidents, not against anybody. Pages are multiples of 8 bytes. Threads:
// any. Cost: reading the page; 10 GB/s and more a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rhapsode::kernels {

inline constexpr uint64_t kPageSumStep = 0x9E3779B97F4A7C15ull;

// What word number `i` adds: the definition.
constexpr uint64_t word_sum(uint64_t word, uint64_t i) {
  const uint64_t x = word ^ ((i + 1) * kPageSumStep);
  return word + (x & 0xFFFFFFFFull) * (x >> 32);
}

// The same for every instruction set.
uint64_t page_sum(std::span<const std::byte> page);

// For tests: see KernelChoice::force.
bool force_page_sum_target(std::string_view name);

}  // namespace rhapsode::kernels
