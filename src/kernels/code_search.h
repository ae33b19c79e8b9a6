// Finding over one-bit codes that lie in a device's memory: the same scores as index/code_scan.h gives for a
// question of 4 bits, bit for bit, and only the best come back.
//
//   score(passage) = sum over tokens t of factor_t * max over the passage's chunks c of dot(levels_t, s_c)
//                    / sqrt(dimensions)
//
// with s_c in {-1, +1}^d from sign bits (dimension i is bit i % 8 of byte i / 8). Passages get slots, counted
// up as they are added, and keep them; whoever deletes or filters leaves a slot's bit out of `visible`, which
// is looked at before the best are chosen. Sums are made in double precision in the order of the tokens; ties
// go to the lower id. Ownership: codes are copied. Threads: one at a time. Errors: kInvalidArgument for what
// does not fit together; kNoSpace, after which everything added before is still there; kInternal with the
// device's words. Cost: docs/results.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace rhapsode::kernels {

// One passage to be added.
struct CodeRun {
  int64_t id = 0;
  const std::byte* codes = nullptr;  // chunks x code_bytes (whole 8-byte words)
  int32_t chunks = 0;                // one at least
};

struct CodeQuestion {
  int tokens = 0;
  std::span<const int8_t> levels;   // [tokens][dimensions], odd, -15 to 15
  std::span<const double> factors;  // [tokens]: weight times scale
};

struct CodeHit {
  int64_t id = 0;
  float score = 0.0f;
};

class CodeSearch {
 public:
  virtual ~CodeSearch() = default;

  // Takes slots for the passages, in their order.
  virtual Status add(std::span<const CodeRun> passages) = 0;
  virtual size_t slots() const = 0;
  virtual uint64_t chunks() const = 0;
  virtual uint64_t device_bytes() const = 0;

  // For each question the best `count`, best first. `visible`: bit s % 64 of word s / 64 is slot s; of
  // slots() bits. All questions share it and are answered in one reading of the codes where they have up to
  // 64 tokens together.
  virtual Result<std::vector<std::vector<CodeHit>>> best(std::span<const CodeQuestion> questions,
                                                         std::span<const uint64_t> visible, int count) = 0;
};

}  // namespace rhapsode::kernels
