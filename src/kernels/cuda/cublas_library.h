// The functions of cuBLASLt that we call, found at run time.
#pragma once

#include <cublasLt.h>

#include "base/result.h"

namespace rhapsode::kernels::cuda {

struct CublasLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) description_create;
  decltype(&cublasLtMatmulDescDestroy) description_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) description_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

// Loaded once a process and kept. Looked for where the system's loader looks, then in the toolkit's folder.
Result<const CublasLibrary*> cublas_library();

}  // namespace rhapsode::kernels::cuda
