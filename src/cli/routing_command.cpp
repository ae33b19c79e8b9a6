// `rhapsode routing`: makes the routing file of a model from texts.
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/quantity.h"
#include "model/pull.h"
#include "rhapsode/memory.h"

namespace rhapsode::cli {

Result<int> run_routing(Invocation& invocation) {
  Terminal& terminal = invocation.terminal;
  RH_TRY(const InterruptGuard interrupts, InterruptGuard::install());
  EngineOptions engine_options = invocation.settings.engine;
  RH_TRY(engine_options.model, model::resolve_model(invocation.settings.model));
  terminal.show_status("Loading the model …");
  RH_TRY(const std::unique_ptr<Engine> engine, Engine::open(engine_options));
  RoutingOptions options;
  options.paths = invocation.arguments;
  options.questions = invocation.settings.routing.questions;
  options.output = invocation.settings.routing.file;
  options.most_chunks = invocation.settings.routing.chunks;
  options.on_progress = [&](int64_t chunks) {
    terminal.show_status(fmt::format("Read {} of at most {} chunks …", chunks, options.most_chunks));
    return interrupts.signal_number() == 0;
  };
  Result<RoutingReport> report = Memory::make_routing(*engine, options);
  terminal.clear_status();
  if (interrupts.signal_number() != 0) return 128 + interrupts.signal_number();
  if (!report.ok()) return std::move(report).error();
  if (invocation.settings.json) {
    terminal.print(to_text({{"file", report->file},
                            {"id", report->id},
                            {"chunks", report->chunks},
                            {"seconds", report->seconds}}));
  } else {
    terminal.print(fmt::format("{} is made of {} chunks, in {}\n", report->file, report->chunks,
                               show_duration(report->seconds)));
  }
  return kExitOk;
}

}  // namespace rhapsode::cli
