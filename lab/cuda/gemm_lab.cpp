// What cuBLASLt could do with the matrix products of a pass: its first choice against the next ones.
//
//   gemm_lab [ROWS]
//
// For each product of the 0.5B's and the 1.5B's layers: as the program runs it (float32 results, with the
// residual added where it does that), and into bf16 results without anything added; of each the library's
// first choice, the best of its first eight, and which one that was. Medians of CUDA events over random bf16.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_error.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/element.h"

namespace rhapsode::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = 64 << 20;
constexpr int kChoices = 8;
constexpr int kRuns = 20;

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "gemm_lab: %s\n", message.c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (!status.ok()) stop(status.error().message);
}
void must(cudaError_t code) {
  if (code != cudaSuccess) stop(cudaGetErrorString(code));
}
void must(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) stop(fmt::format("cuBLASLt: status {}", static_cast<int>(status)));
}

struct Product {
  const char* name;
  int64_t k;
  int64_t m;
  bool added;  // to a residual, as float32
};
constexpr Product kProducts[] = {
    {"0.5b q k v", 896, 1152, false},     {"0.5b output", 896, 896, true},
    {"0.5b gate up", 896, 9728, false},   {"0.5b down", 4864, 896, true},
    {"1.5b q k v", 1536, 2048, false},    {"1.5b output", 1536, 1536, true},
    {"1.5b gate up", 1536, 17920, false}, {"1.5b down", 8960, 1536, true},
};

class Bench {
 public:
  explicit Bench(int64_t rows) : rows_(rows) {
    auto library = cublas_library();
    if (!library.ok()) stop(library.error().message);
    library_ = *library;
    must(library_->create(&handle_));
    must(workspace_.allocate(kWorkspaceBytes, "a workspace"));
    constexpr int64_t kMostWidth = 17920;
    must(weight_.allocate(size_t{2} * kMostWidth * 1536, "a weight"));
    must(x_.allocate(static_cast<size_t>(rows * 8960 * 2), "rows"));
    must(out_.allocate(static_cast<size_t>(rows * kMostWidth * 4), "results"));
    fill(weight_);
    fill(x_);
  }

  void measure(const Product& product, cudaDataType_t out, bool added) {
    cublasLtMatmulDesc_t description = nullptr;
    must(library_->description_create(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    must(
        library_->description_set(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
    cublasLtMatrixLayout_t weight = layout(CUDA_R_16BF, product.k, product.m);
    cublasLtMatrixLayout_t x = layout(CUDA_R_16BF, product.k, rows_);
    cublasLtMatrixLayout_t result = layout(out, product.m, rows_);
    cublasLtMatmulPreference_t preference = nullptr;
    must(library_->preference_create(&preference));
    const size_t most = kWorkspaceBytes;
    must(library_->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most)));
    cublasLtMatmulHeuristicResult_t choices[kChoices];
    int found = 0;
    must(library_->heuristic(handle_, description, weight, x, result, result, preference, kChoices, choices,
                             &found));
    std::vector<double> times;
    for (int i = 0; i < found; ++i) {
      times.push_back(median_ms([&] {
        const float one = 1.0f;
        const float beta = added ? 1.0f : 0.0f;
        must(library_->matmul(handle_, description, &one, weight_.as<void>(), weight, x_.as<void>(), x, &beta,
                              out_.as<void>(), result, out_.as<void>(), result, &choices[i].algo,
                              workspace_.as<void>(), kWorkspaceBytes, nullptr));
      }));
    }
    if (times.empty()) return;
    const auto best = std::min_element(times.begin(), times.end());
    const double flops = 2.0 * static_cast<double>(rows_ * product.k * product.m);
    std::printf(
        "%-14s %6ld x %6ld  %-5s%-6s first %7.4f ms %4.0f TFLOP/s   best %7.4f ms %4.0f TFLOP/s (number "
        "%d)\n",
        product.name, static_cast<long>(product.k), static_cast<long>(product.m),
        out == CUDA_R_32F ? "f32" : "bf16", added ? "added" : "", times[0], flops / times[0] / 1e9, *best,
        flops / *best / 1e9, static_cast<int>(best - times.begin()) + 1);
    std::fflush(stdout);
    library_->preference_destroy(preference);
    for (cublasLtMatrixLayout_t part : {weight, x, result}) library_->layout_destroy(part);
    library_->description_destroy(description);
  }

 private:
  static void fill(const DeviceBuffer& buffer) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values((size_t{4} << 20) + 24);
    for (uint16_t& value : values) value = f32_to_bf16(normal(random) / 16);
    for (size_t begin = 0; begin < buffer.bytes(); begin += values.size() * 2) {
      must(cudaMemcpy(buffer.at<void>(begin), values.data(),
                      std::min(values.size() * 2, buffer.bytes() - begin), cudaMemcpyHostToDevice));
    }
  }

  cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns) const {
    cublasLtMatrixLayout_t made = nullptr;
    must(library_->layout_create(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                 rows));
    return made;
  }

  template <typename F>
  static double median_ms(const F& call) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    must(cudaEventCreate(&begin));
    must(cudaEventCreate(&end));
    std::vector<float> times;
    for (int run = -3; run < kRuns; ++run) {
      must(cudaEventRecord(begin));
      call();
      must(cudaEventRecord(end));
      must(cudaEventSynchronize(end));
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end));
      if (run >= 0) times.push_back(ms);
    }
    must(cudaEventDestroy(begin));
    must(cudaEventDestroy(end));
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    return static_cast<double>(times[kRuns / 2]);
  }

  int64_t rows_;
  const CublasLibrary* library_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_, weight_, x_, out_;
};

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atol(argv[1]) : 8192;
  if (rows < 1) stop("ROWS is a number of rows");
  Bench bench(rows);
  for (const Product& product : kProducts) {
    bench.measure(product, CUDA_R_32F, product.added);
    bench.measure(product, CUDA_R_16BF, false);
  }
  return 0;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda

int main(int argc, char** argv) {
  return rhapsode::kernels::cuda::main(argc, argv);
}
