// What the CUDA back end says where it cannot run: the same in builds with and without CUDA.
#include "kernels/cuda/cuda_backend.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rhapsode::kernels::cuda {
namespace {

BackendOptions small_options() {
  BackendOptions options;
  options.kv = {.layers = 1, .kv_heads = 1, .head_dim = 16, .type = KvType::kF32};
  options.layers.resize(1);
  options.layers[0].heads = 1;
  options.layers[0].rope.dimensions = 16;
  return options;
}

TEST(CudaBackend, WithoutAGpuItIsRefusedInOneSentence) {
  if (why_no_device().empty()) GTEST_SKIP() << "there is a GPU: " << device_name();
  const auto backend = make_cuda_backend(small_options());
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().kind, ErrorKind::kUnsupported);
  const std::string& message = backend.error().message;
  EXPECT_NE(message.find("--device cpu"), std::string::npos) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
  EXPECT_TRUE(device_name().empty());
}

TEST(CudaBackend, DeterministicPassesAreRefused) {
  BackendOptions options = small_options();
  options.deterministic = true;
  const auto backend = make_cuda_backend(options);
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(backend.error().message.find("--device cpu"), std::string::npos) << backend.error().message;
}

}  // namespace
}  // namespace rhapsode::kernels::cuda
