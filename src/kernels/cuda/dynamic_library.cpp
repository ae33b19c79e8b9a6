#include "kernels/cuda/dynamic_library.h"

#include <string>

namespace rhapsode::kernels::cuda {

void* open_library(const char* name) {
  if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return dlopen((std::string(RHAPSODE_CUDA_LIBRARIES) + "/" + name).c_str(), RTLD_NOW);
}

}  // namespace rhapsode::kernels::cuda
