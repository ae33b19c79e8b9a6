// Which kernel attends for which rows, and the room they work in.
//
// Sequences with few rows go to attend_stream, those with many to attend_ring, and what these do not cover
// (float32 pages, other head dimensions) to attend_rows; int8 pages are always streamed. Threads: one at a
// time. Errors: reserve() fails on exhausted memory; run() only enqueues.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <span>

#include "base/result.h"
#include "kernels/attend.h"
#include "kernels/cuda/attend.h"
#include "kernels/cuda/attend_mass.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/plan_layout.h"

namespace rhapsode::kernels::cuda {

// Parts that the pages of narrow and of wide tiles are cut into.
struct AttendSplits {
  int narrow = 1;
  int wide = 1;

  bool operator==(const AttendSplits&) const = default;
};

// The plan's, on the device.
struct PlannedTiles {
  const DeviceTile* tiles = nullptr;  // narrow ones, wide ones
  const DevicePart* parts = nullptr;
  const DeviceMerge* merges = nullptr;
};

class Attention {
 public:
  Attention(const KvShape& shape, std::span<const AttendLayer> layers);

  // How plans are to be cut for run().
  const TileRule& rule() const { return rule_; }
  // Room for passes of this size in every layer.
  Status reserve(const PlanSizes& sizes);
  // Writes the new rows and turns the queries where run() or, with `mass`, add_mass() of the same call reads
  // them turned.
  void write(DeviceAttend call, const PlanSizes& sizes, bool mass, cudaStream_t stream);
  // Sums go to call.lse, or where that is null to lse().
  void run(DeviceAttend call, const PlanSizes& sizes, const PlannedTiles& plan, cudaStream_t stream);
  // What a launch holds besides the sizes.
  AttendSplits splits(const PlanSizes& sizes) const;
  std::array<const void*, 3> rooms() const {
    return {partials_.as<void>(), turned_.as<void>(), lse_.as<void>()};
  }
  // [rows][heads]: the sums that add_mass() goes by.
  float* lse() const { return lse_.as<float>(); }
  // Parts that add_mass() cuts a sequence's queries into.
  int mass_parts_of_queries(const PlanSizes& sizes) const {
    return mass_query_parts(shape_, most_heads_, sizes);
  }
  // After run() of the same call: also sums up where attention went.
  void add_mass(DeviceAttend call, const MassTarget& target, cudaStream_t stream);

 private:
  KvShape shape_;
  int most_heads_ = 0;
  TileRule rule_;
  bool ring_ = false;  // of the layer with most heads, and so of every other
  DeviceBuffer turned_;
  DeviceBuffer lse_;
  DeviceBuffer partials_;
};

}  // namespace rhapsode::kernels::cuda
