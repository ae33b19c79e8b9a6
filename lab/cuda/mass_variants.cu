#include "cuda/mass_variants.h"

#include "kernels/cuda/mass_matrix.cuh"
#include "kernels/cuda/mass_rows.cuh"

namespace rhapsode::kernels::cuda::lab {

namespace {

template <KvType type, int kDim, int kQueries, int kBlocks>
constexpr MassVariant variant(const char* name) {
  return {name, type, kDim, launch_mass<MassConfig<type, kDim, kQueries, kBlocks>>};
}

constexpr MassVariant kVariants[] = {
    variant<KvType::kF16, 64, 128, 2>("128 queries, 2 blocks"),
    variant<KvType::kF16, 64, 64, 2>("64 queries, 2 blocks"),
    variant<KvType::kF16, 64, 64, 3>("64 queries, 3 blocks"),
    variant<KvType::kF16, 64, 128, 1>("128 queries, 1 block"),
    variant<KvType::kF16, 128, 64, 2>("64 queries, 2 blocks"),
    variant<KvType::kF16, 128, 128, 1>("128 queries, 1 block"),
};

}  // namespace

void exact_mass(const DeviceAttend& attend, const MassTarget& target, cudaStream_t stream) {
  switch (attend.shape.type) {
    case KvType::kF32:
      return launch_mass_rows<KvType::kF32>(attend, target, stream);
    case KvType::kF16:
      return launch_mass_rows<KvType::kF16>(attend, target, stream);
    case KvType::kBF16:
      return launch_mass_rows<KvType::kBF16>(attend, target, stream);
    case KvType::kI8:
      return launch_mass_rows<KvType::kI8>(attend, target, stream);
  }
}

std::span<const MassVariant> mass_variants() {
  return kVariants;
}

}  // namespace rhapsode::kernels::cuda::lab
