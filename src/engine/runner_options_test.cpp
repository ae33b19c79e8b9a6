#include "engine/runner_options.h"

#include <gtest/gtest.h>

namespace rhapsode::engine {
namespace {

TEST(RunnerOptions, TheDeviceIsTheCallersChoice) {
  for (const Device device : {Device::kAuto, Device::kCpu, Device::kCuda}) {
    EngineOptions options;
    options.device = device;
    EXPECT_EQ(runner_options(options).value().device, device);
  }
}

TEST(RunnerOptions, SparseDecodeStaysOnTheCpu) {
  EngineOptions options;
  options.sparse_decode.budget_tokens = 1024;
  EXPECT_EQ(runner_options(options).value().device, Device::kCpu);
  options.device = Device::kCpu;
  EXPECT_EQ(runner_options(options).value().device, Device::kCpu);
  options.device = Device::kCuda;
  const auto refused = runner_options(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(refused.error().message.find("--decode-budget 0"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace rhapsode::engine
