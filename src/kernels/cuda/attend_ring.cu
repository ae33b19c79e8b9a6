#include "kernels/cuda/attend_ring.h"

#include "kernels/cuda/attend_ring.cuh"

namespace rhapsode::kernels::cuda {

namespace {

template <KvType type>
using Ring64 = RingConfig<type, 64, 3, 6, true>;
template <KvType type>
using Ring128 = RingConfig<type, 128, 2, 4, true>;

template <KvType type>
void launch_of_dimension(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  if (attend.shape.head_dim == 64) {
    launch_ring<Ring64<type>>(attend, tiles, stream);
  } else {
    launch_ring<Ring128<type>>(attend, tiles, stream);
  }
}

}  // namespace

bool can_attend_ring(const KvShape& shape, int group) {
  const bool narrow = shape.type == KvType::kF16 || shape.type == KvType::kBF16;
  return narrow && (shape.head_dim == 64 || shape.head_dim == 128) && group <= ring_queries(shape.head_dim);
}

void attend_ring(const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
  if (attend.shape.type == KvType::kF16) {
    launch_of_dimension<KvType::kF16>(attend, tiles, stream);
  } else {
    launch_of_dimension<KvType::kBF16>(attend, tiles, stream);
  }
}

}  // namespace rhapsode::kernels::cuda
