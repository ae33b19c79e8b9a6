#include "kernels/cuda/cublas_library.h"

#include "kernels/cuda/dynamic_library.h"

namespace rhapsode::kernels::cuda {

namespace {

#define RH_TEXT_INNER(x) #x
#define RH_TEXT(x) RH_TEXT_INNER(x)
constexpr char kName[] = "libcublasLt.so." RH_TEXT(CUBLAS_VER_MAJOR);

Result<const CublasLibrary*> load() {
  void* const library = open_library(kName);
  if (!library) {
    return make_error(ErrorKind::kUnsupported,
                      "{} cannot be loaded: install the CUDA toolkit's cuBLAS, put its folder into "
                      "LD_LIBRARY_PATH, or use --device cpu",
                      kName);
  }
  static CublasLibrary functions;
  CublasLibrary& f = functions;
  const bool complete = find_function(library, "cublasLtCreate", f.create) &&
                        find_function(library, "cublasLtDestroy", f.destroy) &&
                        find_function(library, "cublasLtMatmul", f.matmul) &&
                        find_function(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic) &&
                        find_function(library, "cublasLtMatmulDescCreate", f.description_create) &&
                        find_function(library, "cublasLtMatmulDescDestroy", f.description_destroy) &&
                        find_function(library, "cublasLtMatmulDescSetAttribute", f.description_set) &&
                        find_function(library, "cublasLtMatrixLayoutCreate", f.layout_create) &&
                        find_function(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy) &&
                        find_function(library, "cublasLtMatmulPreferenceCreate", f.preference_create) &&
                        find_function(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy) &&
                        find_function(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  if (!complete) return make_error(ErrorKind::kUnsupported, "{} lacks functions of its own interface", kName);
  return &functions;
}

}  // namespace

Result<const CublasLibrary*> cublas_library() {
  static const Result<const CublasLibrary*> library = load();
  return library;
}

}  // namespace rhapsode::kernels::cuda
