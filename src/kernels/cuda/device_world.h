// Worlds of attend_test_support on the GPU: pages and tensors are copied there, one attend runs, results come
// back. Test code only.
#pragma once

#include <functional>

#include "kernels/attend_test_support.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/rope_tables.h"

namespace rhapsode::kernels::cuda {

// The kernel that is tested, over the tiles of the whole batch.
using AttendKernel = std::function<void(const DeviceAttend&, const TileList&, int most_references)>;

struct DeviceRun {
  AttendKernel attend;
  int tile_rows = 1;
  int layer = 0;
  Element out = Element::kF32;
  bool read_pages = false;
  bool mass = false;
};

struct DeviceResult {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<std::vector<double>> mass_per_token;                    // with mass: of each sequence
  std::vector<std::pair<const Page*, std::vector<std::byte>>> pages;  // with read_pages: every page's block
};

DeviceResult run_device(testing::World& world, const DeviceRun& run);

}  // namespace rhapsode::kernels::cuda
