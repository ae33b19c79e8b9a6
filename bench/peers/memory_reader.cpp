// A memory behind a pipe: what bench/peers/llama_server.py drives on our side, through the public API alone.
//
//   memory_reader MODEL FOLDER INSTRUCTION THREADS
//
// One JSON object a line on standard input, one or more on standard output:
//   {"add": [PATH...]}                              -> {"passages": [{id, source, header, text, tokens}],
//   seconds}
//   {"ask": QUESTION, "passages": [ID...],          -> {"event": "text"} with the first piece of text, then
//    "policy": POLICY, "max_tokens": N}                {"text", evaluated_tokens, cached_tokens, ...}
//   {"stats": true}                                 -> {"kv_bytes", "disk_bytes", kv_hits, kv_misses}
// An error is {"error": MESSAGE}. The memory is made in FOLDER, which must not exist.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "rhapsode/engine.h"
#include "rhapsode/memory.h"

namespace {

using Json = nlohmann::json;

void say(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

rhapsode::ReadPolicy policy_of(const std::string& name) {
  using rhapsode::ReadPolicy;
  for (const ReadPolicy policy : {ReadPolicy::kAuto, ReadPolicy::kFull, ReadPolicy::kPrefix,
                                  ReadPolicy::kReuse, ReadPolicy::kBlend, ReadPolicy::kReorder}) {
    if (name == rhapsode::to_string(policy)) return policy;
  }
  return ReadPolicy::kReuse;
}

rhapsode::Result<Json> add(rhapsode::Memory& memory, const Json& command) {
  rhapsode::AddOptions options;
  options.paths = command["add"].get<std::vector<std::string>>();
  auto report = memory.add(options);
  if (!report.ok()) return report.error();
  Json passages = Json::array();
  auto sources = memory.list({});
  if (!sources.ok()) return sources.error();
  for (const rhapsode::SourceInfo& source : *sources) {
    auto detail = memory.show(source.source);
    if (!detail.ok()) return detail.error();
    auto text = memory.text(source.source);
    if (!text.ok()) return text.error();
    for (const rhapsode::PassageInfo& passage : detail->passages) {
      passages.push_back({{"id", passage.id},
                          {"source", passage.source},
                          {"header", passage.header},
                          {"text", text->substr(passage.start_byte, passage.end_byte - passage.start_byte)},
                          {"tokens", passage.tokens}});
    }
  }
  return Json{{"passages", std::move(passages)}, {"seconds", report->seconds}};
}

rhapsode::Result<Json> ask(rhapsode::Memory& memory, const Json& command) {
  rhapsode::AskOptions options;
  options.question = command["ask"].get<std::string>();
  options.passages = command["passages"].get<std::vector<int64_t>>();
  options.policy = policy_of(command.value("policy", "reuse"));
  options.max_tokens = command.value("max_tokens", 24);
  options.cite = false;
  options.abstain = false;
  options.budget_tokens = 1 << 20;
  bool first = true;
  options.on_text = [&first](std::string_view) {
    if (first) say({{"event", "text"}});
    first = false;
    return true;
  };
  auto answer = memory.ask(options);
  if (!answer.ok()) return answer.error();
  return Json{{"text", answer->text},
              {"policy", rhapsode::to_string(answer->policy)},
              {"prompt_tokens", answer->usage.prompt_tokens},
              {"evaluated_tokens", answer->usage.evaluated_tokens},
              {"recomputed_tokens", answer->usage.recomputed_tokens},
              {"cached_tokens", answer->usage.cached_tokens},
              {"generated_tokens", answer->usage.generated_tokens},
              {"ttft_ms", answer->timing.ttft_ms}};
}

rhapsode::Result<Json> stats(rhapsode::Memory& memory) {
  auto numbers = memory.stats();
  if (!numbers.ok()) return numbers.error();
  return Json{
      {"kv_bytes", numbers->kv_bytes},
      {"disk_bytes", numbers->kv_bytes + numbers->code_bytes + numbers->text_bytes + numbers->catalog_bytes},
      {"kv_hits", numbers->kv_hits},
      {"kv_misses", numbers->kv_misses}};
}

rhapsode::Result<Json> serve(rhapsode::Memory& memory, const std::string& line) {
  try {
    const Json command = Json::parse(line);
    if (command.contains("add")) return add(memory, command);
    if (command.contains("ask")) return ask(memory, command);
    return stats(memory);
  } catch (const std::exception& error) {
    return rhapsode::Error{rhapsode::ErrorKind::kInvalidArgument, error.what()};
  }
}

int run(char** argv) {
  rhapsode::EngineOptions engine_options;
  engine_options.model = argv[1];
  engine_options.threads = std::atoi(argv[4]);
  auto engine = rhapsode::Engine::open(engine_options);
  if (!engine.ok()) {
    say({{"error", engine.error().message}});
    return 1;
  }
  rhapsode::MemoryOptions options;
  options.folder = argv[2];
  options.create = true;
  options.instruction = argv[3];
  auto memory = rhapsode::Memory::open(**engine, options);
  if (!memory.ok()) {
    say({{"error", memory.error().message}});
    return 1;
  }
  say({{"ready", (*engine)->model().name}});
  for (std::string line; std::getline(std::cin, line);) {
    auto reply = serve(**memory, line);
    say(reply.ok() ? *reply : Json{{"error", reply.error().message}});
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: memory_reader MODEL FOLDER INSTRUCTION THREADS\n");
    return 2;
  }
  return run(argv);
}
