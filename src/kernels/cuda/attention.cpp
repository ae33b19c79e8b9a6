#include "kernels/cuda/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/attend_ring.h"
#include "kernels/cuda/attend_stream.h"

namespace rhapsode::kernels::cuda {

namespace {

// So many tiles of a sequence may read its pages each for themselves: the second to the last find them in the
// L2.
constexpr int kMostNarrowTiles = 4;

}  // namespace

Attention::Attention(const KvShape& shape, std::span<const AttendLayer> layers) : shape_(shape) {
  for (const AttendLayer& layer : layers) most_heads_ = std::max(most_heads_, layer.heads);
  const int group = std::max(1, most_heads_ / std::max(1, shape.kv_heads));
  rule_.narrow_rows = stream_tile_rows(group);
  rule_.wide_rows = ring_tile_rows(shape.head_dim, group);
  rule_.most_narrow_rows = kMostNarrowTiles * rule_.narrow_rows;
  ring_ = can_attend_ring(shape, group);
  rule_.wide_heads = shape.kv_heads;
  rule_.wide_blocks = ring_ ? kProcessors : 0;
  // Pages that only attend_stream reads by matrix products are read by it whatever the rows.
  if (can_stream(shape) && !ring_) rule_.most_narrow_rows = std::numeric_limits<int>::max();
}

Status Attention::reserve(const PlanSizes& sizes) {
  const size_t row_bytes =
      static_cast<size_t>(most_heads_) * static_cast<size_t>(shape_.head_dim) * sizeof(float);
  RH_TRY_STATUS(turned_.reserve(static_cast<size_t>(sizes.rows) * row_bytes, "queries: lower --batch"));
  const size_t lse_bytes = static_cast<size_t>(sizes.rows) * static_cast<size_t>(most_heads_) * sizeof(float);
  RH_TRY_STATUS(lse_.reserve(lse_bytes, "sums of attention: lower --batch"));
  if (!can_stream(shape_)) return {};
  // Narrow and wide tiles, and layers, are read one after another, in the same room.
  size_t bytes = 0;
  for (const PlanSizes& tiles : {sizes, of_outputs(sizes)}) {
    const AttendSplits cut = splits(tiles);
    bytes = std::max({bytes, stream_workspace_bytes(shape_, most_heads_, tiles.narrow_tiles, cut.narrow),
                      ring_workspace_bytes(shape_, tiles.wide_tiles, cut.wide),
                      ring_slots_bytes(shape_, tiles.part_slots)});
  }
  return partials_.reserve(bytes, "partial results of attention");
}

AttendSplits Attention::splits(const PlanSizes& sizes) const {
  return {stream_splits(shape_, most_heads_, sizes.narrow_tiles, sizes.most_references),
          ring_ ? ring_splits(shape_, sizes.wide_tiles, sizes.most_references) : 1};
}

void Attention::write(DeviceAttend call, const PlanSizes& sizes, bool mass, cudaStream_t stream) {
  const bool turns = mass || sizes.narrow_tiles > 0 || !ring_;
  call.turned = turns ? turned_.as<float>() : nullptr;
  turn_and_write(call, stream);
}

void Attention::run(DeviceAttend call, const PlanSizes& sizes, const PlannedTiles& plan,
                    cudaStream_t stream) {
  call.turned = turned_.as<float>();
  if (!call.lse) call.lse = lse();
  const TileList narrow{plan.tiles, sizes.narrow_tiles, rule_.narrow_rows};
  const TileList wide{plan.tiles + sizes.narrow_tiles, sizes.wide_tiles, rule_.wide_rows};
  const AttendSplits cut = splits(sizes);
  auto* const partials = partials_.as<float>();
  if (can_stream(shape_)) {
    attend_stream(call, {narrow, cut.narrow, partials}, stream);
  } else {
    attend_rows(call, narrow, stream);
  }
  if (ring_) {
    RingSchedule schedule{wide, cut.wide, partials};
    if (sizes.part_rounds > 0) {
      schedule.planned = {plan.parts, sizes.part_rounds, plan.merges, sizes.merges};
    }
    attend_ring(call, schedule, stream);
  } else {
    attend_rows(call, wide, stream);
  }
}

void Attention::add_mass(DeviceAttend call, const MassTarget& target, cudaStream_t stream) {
  call.turned = turned_.as<float>();
  call.lse = lse_.as<float>();
  attend_mass(call, target, stream);
}

}  // namespace rhapsode::kernels::cuda
