// Makes a GPU the current one of this thread for as long as it lives: what is allocated, made or launched in
// between is that GPU's. Cost: nothing worth counting when it is current already.
#pragma once

#include <cuda_runtime.h>

namespace rhapsode::kernels::cuda {

class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    changed_ = before_ != device;
    if (changed_) cudaSetDevice(device);
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace rhapsode::kernels::cuda
