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

TEST(RunnerOptions, SeveralDevicesAreGpusUnlessItIsSaidThatTheyAreNot) {
  EngineOptions options;
  options.devices = 3;
  EXPECT_EQ(runner_options(options)->device, Device::kCuda);
  EXPECT_EQ(runner_options(options)->devices, 3);
  options.device = Device::kCpu;
  EXPECT_EQ(runner_options(options)->device, Device::kCpu);
}

TEST(RunnerOptions, WhatNeedsOneDeviceRefusesSeveral) {
  EngineOptions options;
  options.devices = 2;
  options.device = Device::kCpu;
  options.deterministic = true;
  const auto deterministic = runner_options(options);
  ASSERT_FALSE(deterministic.ok());
  EXPECT_EQ(deterministic.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(deterministic.error().message.find("--devices"), std::string::npos);
  options.deterministic = false;
  options.sparse_decode.budget_tokens = 1024;
  const auto sparse = runner_options(options);
  ASSERT_FALSE(sparse.ok());
  EXPECT_EQ(sparse.error().kind, ErrorKind::kUnsupported);
  EXPECT_NE(sparse.error().message.find("--decode-budget 0"), std::string::npos) << sparse.error().message;
}

}  // namespace
}  // namespace rhapsode::engine
