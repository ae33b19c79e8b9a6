#include "cuda/ring_variants.h"

#include "kernels/cuda/attend_ring.cuh"

namespace rhapsode::kernels::cuda::lab {

namespace {

template <int kDim, int kGroups, int kStep, int kStages, bool kNarrow, bool kTurns>
constexpr RingVariant variant(const char* name) {
  using Config = RingConfig<KvType::kF16, kDim, kGroups, kStep, kStages, kNarrow, kTurns>;
  return {name, kDim, Config::kQueries,
          [](const DeviceAttend& attend, const TileList& tiles, cudaStream_t stream) {
            launch_ring<Config>(attend, {tiles}, stream);
          }};
}

constexpr RingVariant kVariants[] = {
    variant<128, 2, 2, 3, true, false>("3 stages, narrow queries, no turns"),
    variant<128, 2, 2, 2, false, true>("2 stages"),
    variant<128, 2, 2, 2, false, false>("2 stages, no turns"),
    variant<128, 2, 1, 6, true, true>("steps of 1, 6 stages, narrow queries"),
    variant<128, 2, 1, 6, true, false>("steps of 1, 6 stages, narrow queries, no turns"),
    variant<64, 3, 1, 8, false, true>("8 stages"),
    variant<64, 3, 1, 6, false, false>("no turns"),
    variant<64, 3, 1, 10, true, false>("10 stages, narrow queries, no turns"),
};

}  // namespace

std::span<const RingVariant> ring_variants() {
  return kVariants;
}

}  // namespace rhapsode::kernels::cuda::lab
