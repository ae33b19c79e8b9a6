// Libraries of the CUDA world that are opened at run time, and the functions found in them.
#pragma once

#include <dlfcn.h>

namespace rhapsode::kernels::cuda {

// Where the system's loader looks, else in the folder of the toolkit that we were built with; kept for good.
// Null: it is not there.
void* open_library(const char* name);

// False: the library lacks it.
template <typename Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace rhapsode::kernels::cuda
