// The kernels of finding over codes: packing them, scanning them, choosing the best.
//
// Layouts: code_layout.h. Everything is queued on the stream; nothing is allocated. Results are integers or
// double precision sums in a fixed order, so they do not depend on the schedule: maxima are joined by atomic
// maxima, and of the chosen only the order varies (the host sorts them).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/code_layout.h"

namespace rhapsode::kernels::cuda {

// Codes of consecutive slots.
struct CodeSegment {
  uint32_t* groups = nullptr;      // [groups][group_words]
  int16_t* ones = nullptr;         // [groups][32] set bits of a code
  uint32_t* ends = nullptr;        // [groups] bit c: chunk c is the last of its passage
  int32_t* first_slots = nullptr;  // [groups] slot of the group's first chunk
  int64_t chunks = 0;
};

// Codes to be packed behind `at`, as they came.
struct RawCodes {
  const uint32_t* words = nullptr;  // [chunks][code_words], device
  const uint32_t* slots = nullptr;  // [chunks] slot; bit 31: the last chunk of it
  int64_t chunks = 0;
  int64_t at = 0;  // first chunk's number in the segment
};
inline constexpr uint32_t kLastOfPassage = 1u << 31;

void pack_codes(const CodeShape& shape, const RawCodes& raw, const CodeSegment& to, cudaStream_t stream);

// What a slot's maxima are before anything was seen: every byte 0x80.
inline constexpr int32_t kNoMaximum = static_cast<int32_t>(0x80808080u);

struct ScanCall {
  CodeShape shape;
  CodeSegment segment;
  const uint32_t* fragments = nullptr;  // [row groups][fragment_words]
  int row_groups = 1;                   // kMostRowGroups at most
  int32_t* maxima = nullptr;            // [slots][stride], at the first row: 2 sum 2^b popcount - 15 popcount
  int stride = 0;
};

// Bytes of shared memory a block needs for so many row groups, and how many it may have.
size_t scan_shared_bytes(const CodeShape& shape, int row_groups);
inline constexpr size_t kScanSharedBytes = 100 << 10;  // two blocks a multiprocessor
// Raises the maxima of the segment's slots. The device's error if the kernel cannot be had.
cudaError_t scan_codes(const ScanCall& call, cudaStream_t stream);

// The best of the slots for each question.
struct SelectCall {
  int questions = 0;
  const int32_t* row_begins = nullptr;  // [questions], rows of `maxima`
  const int32_t* row_ends = nullptr;    // [questions]
  const int32_t* level_sums = nullptr;  // [rows]
  const double* factors = nullptr;      // [rows]
  const int32_t* maxima = nullptr;      // [slots][stride]
  int stride = 0;
  double root = 1.0;                  // of the dimensions
  const uint32_t* visible = nullptr;  // [slots / 32]
  int64_t slots = 0;
  uint32_t count = 0;
  // Working memory and results.
  uint32_t* keys = nullptr;        // [questions][slots]
  uint32_t* histograms = nullptr;  // [questions][3][kHistogramBins], zeroed
  uint32_t* found = nullptr;       // [questions] how many were chosen, zeroed: `count`, and ties of the last
  uint2* hits = nullptr;           // [questions][slots] key, slot
};
inline constexpr int kHistogramBins = 2048;

void select_best(const SelectCall& call, cudaStream_t stream);

// Keys are ordered as scores are; 0 is none.
float score_of_key(uint32_t key);

}  // namespace rhapsode::kernels::cuda
