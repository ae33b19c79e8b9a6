// The exact scan: every chunk code of every passage against the tokens of a question (late interaction).
//
//   score(passage) = sum over question tokens t of weight_t * max over the passage's chunks c of dot(q_t,
//   s_c)
//
// with s_c in {-1, +1}^d / sqrt(d) read from sign bits (1 is +1; dimension i is bit i % 8 of byte i / 8). The
// float question is the reference; the 4-bit question (16 levels, one scale a token) is the fast path: bit
// planes and population counts. Its loss is measured in docs/results.md. Shapes: questions [tokens][d] unit
// length, weights [tokens]. Ownership: the scan reads the caller's codes. Results do not depend on the
// instruction set or the number of threads. Threads: const; scans may run at once, each uses up to `threads`
// threads, fewer for few chunks. Cost: tokens x chunks x d bits; 100,000 chunks and 30 tokens at d = 896 take
// 7 ms (4 bits) or 26 ms (float) of one core with AVX-512, 27 and 56 ms with AVX2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace rhapsode::index {

// The codes of one passage, wherever they lie (a mapped segment, say).
struct PassageCodes {
  int64_t id = 0;
  const std::byte* codes = nullptr;  // chunks x code_bytes, 8-byte aligned
  int32_t chunks = 0;
};

struct QuestionVectors {
  int dimensions = 0;
  std::vector<float> vectors;  // [tokens][dimensions], unit length
  std::vector<float> weights;  // [tokens]
  int tokens() const { return static_cast<int>(weights.size()); }
};

// Signs rank well enough to choose candidates: scores of this form are estimates.
enum class QuestionForm : uint8_t { kFloat, kFourBits, kSigns };

struct ScanHit {
  int64_t id = 0;
  float score = 0.0f;
};

// The score of every passage, in their order; minus infinity for a passage without chunks.
std::vector<float> score_passages(const QuestionVectors& question, std::span<const PassageCodes> passages,
                                  QuestionForm form, int threads);

// The best `count` passages, best first; ties by lower id. Passages without chunks are left out.
std::vector<ScanHit> best_passages(const QuestionVectors& question, std::span<const PassageCodes> passages,
                                   QuestionForm form, int count, int threads);

namespace reference {
// The definition, one bit at a time in double precision.
std::vector<float> score_passages(const QuestionVectors& question, std::span<const PassageCodes> passages);
}  // namespace reference

}  // namespace rhapsode::index
