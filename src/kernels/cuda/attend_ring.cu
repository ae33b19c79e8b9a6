#include "kernels/cuda/attend_ring.h"

#include "kernels/cuda/attend_ring.cuh"

namespace rhapsode::kernels::cuda {

namespace {

template <KvType type, bool plain>
using Ring64 = RingConfig<type, 64, 3, 1, 6, false, plain>;
template <KvType type, bool plain>
using Ring128 = RingConfig<type, 128, 2, 2, 2, true, plain>;

template <KvType type, bool plain>
void launch_of_dimension(const DeviceAttend& attend, const RingSchedule& schedule, cudaStream_t stream) {
  if (attend.shape.head_dim == 64) {
    launch_ring<Ring64<type, plain>>(attend, schedule, stream);
  } else {
    launch_ring<Ring128<type, plain>>(attend, schedule, stream);
  }
}

template <KvType type>
void launch_of_type(const DeviceAttend& attend, const RingSchedule& schedule, cudaStream_t stream) {
  if (attend.soft_cap == 0 && 2 * attend.pairs == attend.shape.head_dim && !attend.adjacent) {
    launch_of_dimension<type, true>(attend, schedule, stream);
  } else {
    launch_of_dimension<type, false>(attend, schedule, stream);
  }
}

}  // namespace

bool can_attend_ring(const KvShape& shape, int group) {
  const bool narrow = shape.type == KvType::kF16 || shape.type == KvType::kBF16;
  return narrow && (shape.head_dim == 64 || shape.head_dim == 128) && group <= ring_queries(shape.head_dim);
}

int ring_splits(const KvShape& shape, int tile_count, int most_references) {
  constexpr int kMostSplits = 64;
  constexpr int kLeastPages = 4;  // of a part
  const int blocks = tile_count * shape.kv_heads;
  if (blocks == 0 || 2 * blocks > kProcessors) return 1;
  return std::clamp(std::min(kProcessors / blocks, most_references / kLeastPages), 1, kMostSplits);
}

size_t ring_workspace_bytes(const KvShape& shape, int tile_count, int splits) {
  return splits == 1 ? 0 : ring_slots_bytes(shape, tile_count * shape.kv_heads * splits);
}

size_t ring_slots_bytes(const KvShape& shape, int slots) {
  const auto queries = static_cast<size_t>(slots) * static_cast<size_t>(ring_queries(shape.head_dim));
  return queries * (static_cast<size_t>(shape.head_dim) + 2) * sizeof(float);
}

void attend_ring(const DeviceAttend& attend, const RingSchedule& schedule, cudaStream_t stream) {
  if (attend.shape.type == KvType::kF16) {
    launch_of_type<KvType::kF16>(attend, schedule, stream);
  } else {
    launch_of_type<KvType::kBF16>(attend, schedule, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
