// The question of a scan, laid out for the kernels.
//
// Four bits: each token's vector is rounded to scale * level with sixteen levels -15, -13, ..., 15; the scale
// of a token minimises the squared error. level = sum over b of 2^b * (plane b has the bit ? 1 : -1), so its
// dot product with a code is 15 d - 2 sum 2^b popcount(plane b XOR code): exact integers. Float: the vectors
// themselves, kTokenBlock tokens side by side. Cost: microseconds a token, once a scan.
#pragma once

#include <cstdint>
#include <vector>

#include "index/code_scan.h"

namespace rhapsode::index {

inline constexpr int kPlanes = 4;
inline constexpr int kTokenBlock = 8;

struct FourBitQuestion {
  explicit FourBitQuestion(const QuestionVectors& question);
  // Of levels that were made before: odd, -15 to 15.
  FourBitQuestion(int dimensions_in, std::vector<int8_t> levels_in, std::vector<float> scales_in);

  int dimensions = 0;
  int tokens = 0;
  int words = 0;                 // of 64 bits, of a code
  std::vector<int8_t> levels;    // [tokens][d]
  std::vector<float> scales;     // [tokens]
  std::vector<uint64_t> planes;  // [tokens][words][kPlanes]; bits behind d are 0

 private:
  void set_planes();
};

// The same bits, of which only the signs are used; scales are those of values that are all of one size.
struct SignQuestion : FourBitQuestion {
  explicit SignQuestion(const QuestionVectors& question);
};

struct FloatQuestion {
  explicit FloatQuestion(const QuestionVectors& question);

  int dimensions = 0;
  int tokens = 0;
  int words = 0;
  std::vector<float> scales;   // [tokens], all 1
  std::vector<float> vectors;  // [blocks][d][kTokenBlock]; zeros behind the last token
};

}  // namespace rhapsode::index
