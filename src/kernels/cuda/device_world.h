// Worlds of attend_test_support on the GPU: pages and tensors are copied there, one attend runs, results come back.
// Test code only.
#pragma once

#include <functional>

#include "kernels/attend_test_support.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/rope_tables.h"

namespace rhapsode::kernels::cuda {

struct DeviceRun {
  std::function<void(const DeviceAttend&, cudaStream_t)> attend;
  int layer = 0;
  Element out = Element::kF32;
  bool read_pages = false;
};

struct DeviceResult {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<std::pair<const Page*, std::vector<std::byte>>> pages;  // with read_pages: every page's block
};

DeviceResult run_device(testing::World& world, const DeviceRun& run);

}  // namespace rhapsode::kernels::cuda
