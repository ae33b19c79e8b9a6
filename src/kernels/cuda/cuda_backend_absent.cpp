// The CUDA back end of a build without CUDA.
#include "kernels/cuda/code_search.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/sharded_cuda.h"

namespace rhapsode::kernels::cuda {

const std::string& why_no_device() {
  static const std::string reason =
      "this program was built without CUDA: build it where nvcc is found, or use --device cpu";
  return reason;
}

std::string device_name() {
  return {};
}

Status check_devices(std::span<const int>) {
  return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
}

Result<std::unique_ptr<Backend>> make_sharded_cuda_backend(BackendOptions, std::span<const int>) {
  return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
}

Result<std::unique_ptr<Backend>> make_cuda_backend(BackendOptions, OpClock*) {
  return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
}

Result<std::unique_ptr<CodeSearch>> make_code_search(int, int) {
  return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
}

}  // namespace rhapsode::kernels::cuda
