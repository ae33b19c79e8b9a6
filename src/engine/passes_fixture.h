// A tiny model with everything that recall's passes need: for tests of recall and of blending.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/trace.h"
#include "engine/engine_passes.h"
#include "recall/encoder.h"
#include "support/tiny_models.h"

namespace rhapsode {

class PassesFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kCapBytes = 64 << 20;

  void SetUp() override { open(/*deterministic=*/false); }
  // Anew, with nothing left of what was there.
  void open(bool deterministic, std::unique_ptr<kernels::PageMemory> memory = nullptr) {
    RH_REQUIRE_TINY_MODEL(path, "qwen2-f32");
    encoder_.reset();
    passes_.reset();
    scheduler_.reset();
    pool_.reset();
    engine::RunnerOptions options;
    options.model = options.vocabulary = path;
    options.kv_type = kernels::KvType::kF32;
    options.threads = 2;
    options.deterministic = deterministic;
    adjust(options);
    auto runner = engine::ModelRunner::open(options);
    ASSERT_TRUE(runner.ok()) << runner.error().message;
    runner_ = std::move(runner).value();
    pool_ = (memory ? store::PagePool::create(runner_->kv_shape(), kCapBytes, 0, std::move(memory))
                    : runner_->make_pool(kCapBytes))
                .value();
    scheduler_ = std::make_unique<engine::Scheduler>(*runner_, *pool_, tracer_, engine::SchedulerOptions{});
    passes_ = std::make_unique<engine::EnginePasses>(*runner_, *scheduler_);
    auto frame = recall::PromptFrame::make(runner_->shared_tokenizer(), nullptr, "Answer.");
    ASSERT_TRUE(frame.ok()) << frame.error().message;
    frame_ = std::make_unique<recall::PromptFrame>(std::move(frame).value());
    encoder_ = std::make_unique<recall::Encoder>(*passes_, *frame_);
  }
  virtual void adjust(engine::RunnerOptions&) const {}
  int prefix_tokens() const { return static_cast<int>(frame_->prefix().size()); }

  Tracer tracer_;
  std::unique_ptr<engine::ModelRunner> runner_;
  std::unique_ptr<store::PagePool> pool_;
  std::unique_ptr<engine::Scheduler> scheduler_;
  std::unique_ptr<engine::EnginePasses> passes_;
  std::unique_ptr<recall::PromptFrame> frame_;
  std::unique_ptr<recall::Encoder> encoder_;
};

}  // namespace rhapsode
