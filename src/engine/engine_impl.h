// What an Engine is made of: for engine.cpp, and for memory.cpp, which reads and encodes through the same
// parts.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/trace.h"
#include "engine/model_runner.h"
#include "engine/prompt.h"
#include "engine/request_state.h"
#include "engine/scheduler.h"
#include "rhapsode/engine.h"

namespace rhapsode {

struct Generation::State final : engine::RequestState {
  using RequestState::RequestState;
};

struct Engine::Impl {
  EngineOptions options;
  Tracer tracer;
  std::unique_ptr<engine::ModelRunner> runner;
  std::unique_ptr<engine::PromptBuilder> prompts;
  std::unique_ptr<store::PagePool> pool;
  std::unique_ptr<store::PagePool> ram_pool;  // beside a GPU's; else null
  int context_tokens = 0;
  double load_ms = 0;
  std::atomic<int64_t> next_id{1};

  // The decode budget of a request: its own, else the engine's; 0: none.
  Result<int> decode_budget(const Request& request) const;
  // Queues a request whose prompt is made; `state` holds what differs from an ordinary one.
  Result<Generation> start(std::shared_ptr<Generation::State> state, std::vector<int32_t> prompt);

  std::unique_ptr<engine::Scheduler> scheduler;  // last: it stops before what it uses goes away
};

}  // namespace rhapsode
