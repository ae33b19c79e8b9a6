// A memory over a tiny random model: what holds whatever the model says. Answers are noise; accounting,
// equality of policies, durability and erasure are not. Shared by memory_*test.cpp. With
// $RHAPSODE_TEST_DEVICES the pages lie in so many shards of the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "index/whitening.h"
#include "rhapsode/memory.h"
#include "support/temporary_folder.h"
#include "support/tiny_models.h"

namespace rhapsode {

namespace fs = std::filesystem;

inline constexpr char kTinyModel[] = "qwen2-f32";

// Any fixed map serves: the router's quality is not what is tested here.
inline fs::path random_whitening(const Engine& engine, const fs::path& path, int dimensions) {
  const int layer = std::min((engine.model().layers + 4) / 5, engine.model().layers - 1);
  index::WhiteningTrainer trainer(dimensions, layer, "tiny");
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> state(dimensions);
  for (int i = 0; i < 4 * dimensions; ++i) {
    for (float& value : state) value = normal(random);
    trainer.add_chunk(state);
    trainer.add_question_token(state);
  }
  const auto whitening = trainer.finish(/*few_are_enough=*/true);
  EXPECT_TRUE(whitening.ok());
  EXPECT_TRUE(whitening->save(path).ok());
  return path;
}

class MemoryTest : public test::TemporaryFolder {
 protected:
  void SetUp() override {
    RH_REQUIRE_TINY_MODEL(path, tiny_model());
    EngineOptions options;
    options.model = path;
    options.threads = 2;
    options.kv_cap_bytes = 64 << 20;
    options.cache_folder = folder_ / "home";
    if (const char* devices = std::getenv("RHAPSODE_TEST_DEVICES")) {
      options.device = Device::kCpu;
      options.devices = std::atoi(devices);
    }
    adjust(options);
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_ = std::move(engine).value();
    fs::create_directories(folder_ / "docs");
  }

  virtual const char* tiny_model() const { return kTinyModel; }
  virtual void adjust(EngineOptions&) const {}

  MemoryOptions options(bool read_only = false) {
    MemoryOptions options;
    options.folder = folder_ / "memory";
    options.create = !read_only;
    options.read_only = read_only;
    options.whitening = folder_ / "tiny.rhw";
    if (!fs::exists(options.whitening)) random_whitening(*engine_, options.whitening, embedding());
    return options;
  }
  // Of the tiny models: heads x head dimension.
  int embedding() const { return engine_->model().heads * engine_->model().head_dim; }

  std::unique_ptr<Memory> open(bool read_only = false) {
    auto memory = Memory::open(*engine_, options(read_only));
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    return std::move(memory).value();
  }

  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / "docs" / name).parent_path());
    std::ofstream(folder_ / "docs" / name) << text;
  }

  AddReport add(Memory& memory, AddOptions options = {}) {
    if (options.paths.empty()) options.paths = {(folder_ / "docs").string()};
    auto report = memory.add(options);
    EXPECT_TRUE(report.ok()) << report.error().message;
    return report.ok() ? report.value() : AddReport{};
  }

  AskOptions asking(const std::string& question, ReadPolicy policy) {
    AskOptions options;
    options.question = question;
    options.policy = policy;
    options.max_tokens = 8;
    options.cite = false;
    return options;
  }

  Answer ask(Memory& memory, const AskOptions& options) {
    auto answer = memory.ask(options);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? answer.value() : Answer{};
  }

  std::unique_ptr<Engine> engine_;
};

inline std::string paragraphs(int count, const std::string& word) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += word + " number " + std::to_string(i) + " stands in the hall of the " + word + " house.\n\n";
  }
  return text;
}

}  // namespace rhapsode
