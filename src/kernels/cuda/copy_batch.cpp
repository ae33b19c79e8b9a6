#include "kernels/cuda/copy_batch.h"

#include <vector>

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

namespace {

// Whether the driver took them; one that does not know the call says so.
Result<bool> copy_at_once(std::span<const PageMemory::CopyIn> copies, size_t offset, size_t bytes,
                          cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  std::vector<void*> to;
  std::vector<const void*> from;
  to.reserve(copies.size());
  from.reserve(copies.size());
  for (const PageMemory::CopyIn& copy : copies) {
    to.push_back(copy.to + offset);
    from.push_back(copy.from.data() + offset);
  }
  const std::vector<size_t> sizes(copies.size(), bytes);
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  const cudaError_t code = cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), copies.size(),
                                                &attributes, &first, 1, stream);
  if (code == cudaErrorNotSupported || code == cudaErrorCallRequiresNewerDriver) {
    cudaGetLastError();
    return false;
  }
  RH_TRY_STATUS(check(code, "copying pages"));
  return true;
#else
  return false;
#endif
}

}  // namespace

Status copy_batch(std::span<const PageMemory::CopyIn> copies, size_t offset, size_t bytes,
                  cudaStream_t stream) {
  if (copies.empty() || bytes == 0) return {};
  RH_TRY(const bool taken, copy_at_once(copies, offset, bytes, stream));
  if (taken) return {};
  for (const PageMemory::CopyIn& copy : copies) {
    RH_TRY_STATUS(check(
        cudaMemcpyAsync(copy.to + offset, copy.from.data() + offset, bytes, cudaMemcpyHostToDevice, stream),
        "copying pages"));
  }
  return {};
}

}  // namespace rhapsode::kernels::cuda
