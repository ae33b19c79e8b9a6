#include "cuda/ring_variants.h"

#include "kernels/cuda/attend_ring.cuh"

namespace rhapsode::kernels::cuda::lab {

namespace {

template <int kDim, int kGroups, int kStages, bool kTurns>
constexpr RingVariant variant(const char* name) {
  using Config = RingConfig<KvType::kF16, kDim, kGroups, kStages, kTurns>;
  return {name, kDim, Config::kQueries,
          [](const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
            launch_ring<Config>(attend, {tiles}, stream);
          }};
}

constexpr RingVariant kVariants[] = {
    variant<128, 2, 4, false>("2 groups, no turns"),
    variant<128, 2, 3, true>("2 groups, 3 stages"),
    variant<64, 3, 6, false>("3 groups, no turns"),
    variant<64, 3, 4, true>("3 groups, 4 stages"),
    variant<64, 2, 6, true>("2 groups"),
};

}  // namespace

std::span<const RingVariant> ring_variants() {
  return kVariants;
}

}  // namespace rhapsode::kernels::cuda::lab
