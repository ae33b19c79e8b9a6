#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

namespace {

struct DeviceCheck {
  std::string reason;
  std::string name;
};

DeviceCheck look_for_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    return {fmt::format("no NVIDIA GPU can be used here ({}): use --device cpu",
                        code == cudaSuccess ? "none is visible" : cudaGetErrorString(code)),
            ""};
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    return {"the GPU does not answer: use --device cpu", ""};
  }
  if (properties.major != 9 || properties.minor != 0) {
    return {fmt::format(
                "{} has compute capability {}.{}; this program is built for 9.0 (Hopper): use --device cpu",
                properties.name, properties.major, properties.minor),
            ""};
  }
  return {"", properties.name};
}

Result<cudaDeviceProp> properties_of(int gpu, int visible) {
  if (gpu < 0 || gpu >= visible) {
    return make_error(
        ErrorKind::kUnsupported,
        "GPU {} is asked for and {} {} visible: lower --devices, or look at CUDA_VISIBLE_DEVICES", gpu,
        visible, visible == 1 ? "is" : "are");
  }
  cudaDeviceProp properties{};
  RH_TRY_STATUS(check(cudaGetDeviceProperties(&properties, gpu), "asking a GPU what it is"));
  return properties;
}

const DeviceCheck& device_check() {
  static const DeviceCheck found = look_for_device();
  return found;
}

}  // namespace

const std::string& why_no_device() {
  return device_check().reason;
}

std::string device_name() {
  return device_check().name;
}

Status check_devices(std::span<const int> gpus) {
  if (!why_no_device().empty()) return make_error(ErrorKind::kUnsupported, "{}", why_no_device());
  int visible = 0;
  RH_TRY_STATUS(check(cudaGetDeviceCount(&visible), "counting GPUs"));
  RH_TRY(const cudaDeviceProp first, properties_of(0, visible));
  for (const int gpu : gpus) {
    RH_TRY(const cudaDeviceProp other, properties_of(gpu, visible));
    const bool alike = other.major == first.major && other.minor == first.minor &&
                       other.multiProcessorCount == first.multiProcessorCount;
    if (alike) continue;
    return make_error(ErrorKind::kUnsupported,
                      "GPU {} is {} and GPU 0 is {}: memory is spread over GPUs of one kind only, which "
                      "CUDA_VISIBLE_DEVICES can choose",
                      gpu, other.name, first.name);
  }
  return {};
}

}  // namespace rhapsode::kernels::cuda
