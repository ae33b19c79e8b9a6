// The product behind whitening: an int8 matrix with a scale a row times some float vectors. Vector kernels,
// one set per instruction set.
//
// Shapes: matrix [rows][stride] int8, scales [rows], vectors [count][stride] float32, out [count][rows]. The
// order of additions of one result depends on nothing but the instruction set: neither on the other vectors
// nor on their number. Threads: a pure function of its arguments. Cost: rows * stride multiply-adds a vector;
// four vectors share one pass over the matrix.
#pragma once

#include <cstdint>
#include <string_view>

namespace rhapsode::index {

inline constexpr int kWhiteningStride = 64;  // rows are padded with zeros to a multiple of it

struct WhiteningTask {
  const int8_t* matrix = nullptr;
  const float* scales = nullptr;
  int rows = 0;
  int stride = 0;
  const float* vectors = nullptr;
  int count = 0;
  float* out = nullptr;
};

struct WhiteningKernels {
  const char* target = "";
  void (*multiply)(const WhiteningTask& task) = nullptr;
};

const WhiteningKernels& whitening_kernels();

// For tests: see KernelChoice::force.
bool force_whitening_target(std::string_view name);

}  // namespace rhapsode::index
