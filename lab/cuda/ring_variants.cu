#include "cuda/ring_variants.h"

#include "kernels/cuda/attend_ring.cuh"

namespace rhapsode::kernels::cuda::lab {

namespace {

template <int kDim, int kGroups, int kStep, int kStages, bool kTurns>
constexpr RingVariant variant(const char* name) {
  using Config = RingConfig<KvType::kF16, kDim, kGroups, kStep, kStages, kTurns>;
  return {name, kDim, Config::kQueries,
          [](const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
            launch_ring<Config>(attend, {tiles}, stream);
          }};
}

constexpr RingVariant kVariants[] = {
    variant<128, 2, 2, 2, false>("2 groups, 2 pages a step, no turns"),
    variant<128, 2, 1, 4, true>("2 groups, 1 page a step"),
    variant<64, 3, 1, 8, true>("3 groups, turns"),
    variant<64, 2, 2, 4, false>("2 groups, 2 pages a step, no turns"),
};

}  // namespace

std::span<const RingVariant> ring_variants() {
  return kVariants;
}

}  // namespace rhapsode::kernels::cuda::lab
