#include "kernels/cuda/cublas_library.h"

#include <dlfcn.h>

#include <string>

namespace rhapsode::kernels::cuda {

namespace {

#define RH_TEXT_INNER(x) #x
#define RH_TEXT(x) RH_TEXT_INNER(x)
constexpr char kName[] = "libcublasLt.so." RH_TEXT(CUBLAS_VER_MAJOR);

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<const CublasLibrary*> load() {
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen((std::string(RHAPSODE_CUDA_LIBRARIES) + "/" + kName).c_str(), RTLD_NOW);
  if (!library) {
    return make_error(ErrorKind::kUnsupported,
                      "{} cannot be loaded: install the CUDA toolkit's cuBLAS, put its folder into "
                      "LD_LIBRARY_PATH, or use --device cpu",
                      kName);
  }
  static CublasLibrary functions;
  CublasLibrary& f = functions;
  const bool complete = find(library, "cublasLtCreate", f.create) &&
                        find(library, "cublasLtDestroy", f.destroy) &&
                        find(library, "cublasLtMatmul", f.matmul) &&
                        find(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
                        find(library, "cublasLtMatmulDescCreate", f.description_create) &&
                        find(library, "cublasLtMatmulDescDestroy", f.description_destroy) &&
                        find(library, "cublasLtMatmulDescSetAttribute", f.description_set) &&
                        find(library, "cublasLtMatrixLayoutCreate", f.layout_create) &&
                        find(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
                        find(library, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
                        find(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
                        find(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  if (!complete) return make_error(ErrorKind::kUnsupported, "{} lacks functions of its own interface", kName);
  return &functions;
}

}  // namespace

Result<const CublasLibrary*> cublas_library() {
  static const Result<const CublasLibrary*> library = load();
  return library;
}

}  // namespace rhapsode::kernels::cuda
