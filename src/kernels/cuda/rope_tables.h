// The sines and cosines of one pass, for every rotary kind that a model's layers have.
//
// Layers share a table when their kinds are equal (all of them, or gemma's two). Filled once a pass: rows by
// position, by the frame position they are written at, and by minus each shift. Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/attend.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/device_buffer.h"

namespace rhapsode::kernels::cuda {

// What one layer reads; each pointer is [.][2 * pairs].
struct RopeRows {
  int pairs = 0;
  bool adjacent = false;
  const float* rows = nullptr;
  const float* writes = nullptr;
  const float* shifts = nullptr;
};

class RopeTables {
 public:
  explicit RopeTables(std::span<const AttendLayer> layers);
  Status start();  // once: frequencies to the device

  // `positions` on the device: [rows] positions, [rows] frame positions, [shifts] negated shifts.
  Status fill(const int32_t* positions, int rows, int shifts, cudaStream_t stream);
  RopeRows of_layer(int layer) const;
  const void* table() const { return table_.as<void>(); }

 private:
  struct Kind {
    RopeSpec spec;
    RopeOnDevice device;
    size_t offset = 0;  // in the table, bytes
  };
  std::vector<Kind> kinds_;
  std::vector<int> layer_kind_;
  DeviceBuffer frequencies_;
  DeviceBuffer table_;
  int rows_ = 0;
};

}  // namespace rhapsode::kernels::cuda
