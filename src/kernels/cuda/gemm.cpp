#include "kernels/cuda/gemm.h"

#include <map>
#include <tuple>

#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kWorkspaceBytes = 64 << 20;
constexpr size_t kMostPlans = 4096;

cudaDataType_t type_of(Element element) {
  return element == Element::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// What an algorithm was chosen for, and what it takes to call it again.
struct Plan {
  const CublasLibrary* library = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t weight = nullptr;
  cublasLtMatrixLayout_t x = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (description) library->description_destroy(description);
    for (cublasLtMatrixLayout_t layout : {weight, x, out}) {
      if (layout) library->layout_destroy(layout);
    }
  }
};

// Weights may be a part of a larger buffer: how they are aligned is known only from their address.
uint32_t weight_alignment(const GemmCall& call) {
  const auto address = reinterpret_cast<uintptr_t>(call.weight.data) | 256;
  return static_cast<uint32_t>(address & -address);
}

using PlanKey = std::tuple<int64_t, int64_t, int64_t, Element, Element, bool, bool, uint32_t>;

PlanKey key_of(const GemmCall& call) {
  return {call.m,
          call.k,
          call.rows,
          call.x.element,
          call.out.element,
          call.bias != nullptr,
          call.residual != nullptr,
          weight_alignment(call)};
}

}  // namespace

struct Gemm::Impl {
  const CublasLibrary* library = nullptr;
  cublasLtHandle_t handle = nullptr;
  DeviceBuffer workspace;
  std::map<PlanKey, Plan> plans;

  ~Impl() {
    plans.clear();
    if (handle) library->destroy(handle);
  }
  Result<Plan*> plan_for(const GemmCall& call);
  bool describe(const GemmCall& call, Plan& plan) const;
  bool choose(const GemmCall& call, Plan& plan) const;
};

Gemm::Gemm() : impl_(std::make_unique<Impl>()) {}
Gemm::~Gemm() = default;

Result<std::unique_ptr<Gemm>> Gemm::make() {
  std::unique_ptr<Gemm> gemm(new Gemm);
  RH_TRY(gemm->impl_->library, cublas_library());
  if (gemm->impl_->library->create(&gemm->impl_->handle) != CUBLAS_STATUS_SUCCESS) {
    return make_error(ErrorKind::kUnsupported, "cuBLASLt did not start on this GPU");
  }
  RH_TRY_STATUS(gemm->impl_->workspace.allocate(kWorkspaceBytes, "matrix products"));
  return gemm;
}

// In cuBLAS's column-major terms: out[m x rows] = weight[k x m]^T x[k x rows].
bool Gemm::Impl::describe(const GemmCall& call, Plan& plan) const {
  plan.library = library;
  const bool tf32 = call.x.element == Element::kF32;
  const auto compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  bool good = library->description_create(&plan.description, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes) {
    good =
        good && library->description_set(plan.description, attribute, value, bytes) == CUBLAS_STATUS_SUCCESS;
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
  if (call.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t bias_type = CUDA_R_32F;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type, sizeof(bias_type));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias, sizeof(call.bias));
  }
  const auto layout = [&](cublasLtMatrixLayout_t* out, Element element, int64_t rows, int64_t columns) {
    const auto status = library->layout_create(out, type_of(element), static_cast<uint64_t>(rows),
                                               static_cast<uint64_t>(columns), rows);
    good = good && status == CUBLAS_STATUS_SUCCESS;
  };
  layout(&plan.weight, call.weight.element, call.k, call.m);
  layout(&plan.x, call.x.element, call.k, call.rows);
  layout(&plan.out, call.out.element, call.m, call.rows);
  return good;
}

bool Gemm::Impl::choose(const GemmCall& call, Plan& plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  if (library->preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return false;
  const size_t most = kWorkspaceBytes;
  library->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most));
  const uint32_t alignment = weight_alignment(call);
  library->preference_set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment,
                          sizeof(alignment));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const auto status = library->heuristic(handle, plan.description, plan.weight, plan.x, plan.out, plan.out,
                                         preference, 1, &best, &found);
  library->preference_destroy(preference);
  plan.algorithm = best.algo;
  return status == CUBLAS_STATUS_SUCCESS && found > 0;
}

Result<Plan*> Gemm::Impl::plan_for(const GemmCall& call) {
  if (plans.size() >= kMostPlans) plans.clear();  // row counts come and go
  const auto [entry, fresh] = plans.try_emplace(key_of(call));
  Plan& plan = entry->second;
  if (!fresh) return &plan;
  if (describe(call, plan) && choose(call, plan)) return &plan;
  plans.erase(entry);
  return make_error(ErrorKind::kUnsupported, "cuBLASLt cannot multiply {} rows of {} by a matrix of {} x {}",
                    call.rows, call.k, call.k, call.m);
}

Status Gemm::run(const GemmCall& call, cudaStream_t stream) {
  if (call.rows == 0) return {};
  RH_TRY(Plan* const plan, impl_->plan_for(call));
  const CublasLibrary& library = *impl_->library;
  if (call.bias) {
    library.description_set(plan->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &call.bias,
                            sizeof(call.bias));
  }
  const float one = 1.0f;
  const float beta = call.residual ? 1.0f : 0.0f;
  const void* addend = call.residual ? call.residual : call.out.data;
  const auto status = library.matmul(impl_->handle, plan->description, &one, call.weight.data, plan->weight,
                                     call.x.data, plan->x, &beta, addend, plan->out, call.out.data, plan->out,
                                     &plan->algorithm, impl_->workspace.as<void>(), kWorkspaceBytes, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return make_error(ErrorKind::kInternal, "cuBLASLt failed (status {}) on {} rows, {} x {}",
                    static_cast<int>(status), call.rows, call.k, call.m);
}

}  // namespace rhapsode::kernels::cuda
