// Rows of K and V to int8 and back, for one KV head of one page: vector kernels, one set per instruction set.
//
// Shapes: keys [groups][head_dim][16], a scale for each of the groups * 16 slots; values [rows][head_dim], a
// scale a row. value = int8 * scale, scale = max |value| / 127, rounded to nearest even. Every instruction
// set gives the same bytes. Rows whose largest magnitude is below 1.5e-36 become zeros: the reciprocal of
// their scale is no float. Values that are not finite give a scale that is not finite: the caller refuses it.
// Threads: pure functions of their arguments. Cost: two passes over one head, which the first-level cache
// holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/page.h"

namespace rhapsode::store {

struct KvHeadShape {
  kernels::KvType type = kernels::KvType::kF16;  // of the wide side: f32, f16 or bf16
  int head_dim = 0;                              // a multiple of 16
  int count = 0;                                 // groups of 16 keys, or rows of values
};

struct KvQuantizeKernels {
  const char* target = "";
  void (*quantize_keys)(const KvHeadShape& shape, const std::byte* in, int8_t* out, float* scales) = nullptr;
  void (*quantize_values)(const KvHeadShape& shape, const std::byte* in, int8_t* out,
                          float* scales) = nullptr;
  void (*widen_keys)(const KvHeadShape& shape, const int8_t* in, const float* scales,
                     std::byte* out) = nullptr;
  void (*widen_values)(const KvHeadShape& shape, const int8_t* in, const float* scales,
                       std::byte* out) = nullptr;
};

const KvQuantizeKernels& kv_quantize_kernels();

// For tests: see KernelChoice::force.
bool force_kv_quantize_target(std::string_view name);

}  // namespace rhapsode::store
