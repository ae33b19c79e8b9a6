#include "kernels/cuda/sharded_cuda.h"

#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_collective.h"
#include "kernels/sharded_backend.h"

namespace rhapsode::kernels::cuda {

Result<std::unique_ptr<Backend>> make_sharded_cuda_backend(BackendOptions options,
                                                           std::span<const int> gpus) {
  RH_TRY_STATUS(check_devices(gpus));
  RH_TRY(std::vector<std::unique_ptr<Collective>> ends, device_collective(gpus));
  // A shard's thread is its GPU's for good.
  const auto make = [](BackendOptions own) -> Result<std::unique_ptr<Backend>> {
    RH_TRY_STATUS(check(cudaSetDevice(own.device), "choosing a GPU"));
    return make_cuda_backend(std::move(own));
  };
  return make_sharded_backend(std::move(options), std::move(ends), make, {gpus.begin(), gpus.end()});
}

}  // namespace rhapsode::kernels::cuda
