// The kernels of the scan: dot products of all question tokens with a batch of codes, one set per instruction
// set. Lanes are codes, so nothing is added across lanes.
//
// Shapes: codes [kBatchCodes] pointers, of which `count` matter (the others must be readable as well); dots
// [tokens][kBatchCodes]. Every instruction set gives the same results: integers for the 4-bit form, and sums
// of exact products in the order of the dimensions for floats. Bits behind the dimensions are ignored.
// Memory: the caller's, sized by the functions below, on 64-byte boundaries. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "index/scan_question.h"

namespace rhapsode::index {

inline constexpr int kBatchCodes = 64;

// Working memory of one thread.
constexpr size_t four_bit_scratch_bytes(int words) {
  return static_cast<size_t>(words) * kBatchCodes * sizeof(uint64_t);
}
// At most two vectors of sixteen codes are spread out at a time.
constexpr size_t float_scratch_bytes(int words) {
  return four_bit_scratch_bytes(words) + static_cast<size_t>(words) * 64 * 32 * sizeof(float);
}

struct CodeBatch {
  const std::byte* const* codes = nullptr;
  int count = 0;
  std::byte* scratch = nullptr;
};

// The range of a batch that belongs to one passage.
struct BatchRange {
  int begin = 0;
  int end = 0;
};

struct ScanKernels {
  const char* target = "";
  void (*four_bit)(const FourBitQuestion& question, const CodeBatch& batch, int32_t* dots) = nullptr;
  // The same with the signs of the question's values alone: dot products of +-1, a quarter of the work.
  void (*signs)(const FourBitQuestion& question, const CodeBatch& batch, int32_t* dots) = nullptr;
  void (*floats)(const FloatQuestion& question, const CodeBatch& batch, float* dots) = nullptr;
  // best[t] = max(best[t], dots[t][range])
  void (*raise_integers)(const int32_t* dots, BatchRange range, int tokens, int32_t* best) = nullptr;
  void (*raise_floats)(const float* dots, BatchRange range, int tokens, float* best) = nullptr;
};

const ScanKernels& scan_kernels();

// For tests: see KernelChoice::force.
bool force_scan_target(std::string_view name);

}  // namespace rhapsode::index
