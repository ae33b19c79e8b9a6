// attend on the GPU: the meaning of reference/attend.cpp over page references in device memory.
//
// Angles come from double precision, once a pass: make_angles() fills a table with one row of cosines and
// sines for every row's position, every write's frame position and every distinct shift. A query is turned by
// its own position first, once, and by minus a page's shift after that, so a page in a new frame costs one
// table row, whatever the query's position. Shapes as in attend.h; everything lies on the device. Every
// function enqueues on `stream` and allocates nothing.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/device_types.h"
#include "kernels/cuda/plan_layout.h"
#include "kernels/page.h"

namespace rhapsode::kernels::cuda {

inline constexpr int kProcessors = 132;  // of the GPU, as far as the host cuts work for it

// One rotary kind on the device.
struct RopeOnDevice {
  const double* frequencies = nullptr;  // [pairs]
  int pairs = 0;
  bool adjacent = false;
  float magnitude = 1.0f;
};

// angles[i] is a position; table[i] = pairs cosines, pairs sines. The first `with_magnitude` rows carry the
// magnitude: what turns a query or key once; shifts turn it again and do not.
void make_angles(const RopeOnDevice& rope, const int32_t* positions, int count, int with_magnitude,
                 float* table, cudaStream_t stream);

// The uploaded plan as pointers.
struct DevicePlan {
  int rows = 0;
  const int32_t* positions = nullptr;  // [rows]
  const int32_t* row_sequence = nullptr;
  const DeviceWrite* writes = nullptr;
  const DeviceList* lists = nullptr;  // of the layer: [sequences]
  const DeviceReference* references = nullptr;
  const int32_t* gathered = nullptr;
};

// One layer of a pass.
struct DeviceAttend {
  KvShape shape;
  DevicePlan plan;
  int layer = 0;
  int heads = 0;
  float scale = 1.0f;
  int32_t window = 0;
  float soft_cap = 0.0f;
  int pairs = 0;
  bool adjacent = false;
  const float* row_angles = nullptr;    // [rows][2 * pairs]: of positions
  const float* write_angles = nullptr;  // [rows][2 * pairs]: of frame positions
  const float* shift_angles = nullptr;  // [shifts][2 * pairs]: of minus the shift
  const float* q = nullptr;             // [rows][heads][head_dim], strides in floats from row to row
  float* turned = nullptr;   // [rows][heads][head_dim], contiguous; null where nobody reads turned queries
  const float* k = nullptr;  // [rows][kv_heads][head_dim]
  const float* v = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  DeviceValue out;       // [rows][heads][head_dim], contiguous
  float* lse = nullptr;  // [rows][heads]; optional
};

// Turns every query by its own position into `turned` (attend_ring() alone does without that), and stores the
// rotated keys and the values of every row that is written somewhere. Before any kernel that attends.
void turn_and_write(const DeviceAttend& attend, cudaStream_t stream);

// The rows of some tiles; of no more than `rows` each.
struct TileList {
  const DeviceTile* tiles = nullptr;  // on the device
  int count = 0;
  int rows = 1;
};

// For every shape and type of page: one warp a row and head.
void attend_rows(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream);

}  // namespace rhapsode::kernels::cuda
