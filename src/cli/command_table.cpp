#include "cli/command.h"

namespace rhapsode::cli {
namespace {

constexpr Command kCommands[] = {
    {kGenerate, "generate", "[PROMPT]", 0, 1, "answer a prompt",
     "rhapsode generate \"What is a rhapsode?\"\n"
     "git diff | rhapsode generate --system \"Review this change.\"\n"
     "rhapsode generate --raw -n 64 \"def quicksort(items):\"\n"
     "rhapsode generate --json --json-schema answer.schema.json -f question.txt",
     run_generate},
    {kPull, "pull", "[NAME|URL|PATH]", 0, 1, "get a model, verified, into the home folder",
     "rhapsode pull\n"
     "rhapsode pull smollm2-135m\n"
     "rhapsode pull --list",
     run_pull},
    {kInspect, "inspect", "[MODEL]", 0, 1, "describe a model file without loading it",
     "rhapsode inspect qwen2.5-coder-0.5b\n"
     "rhapsode inspect --tensors ./model.gguf",
     run_inspect},
    {kBench, "bench", "", 0, 0, "measure how fast prompts are read and text is generated",
     "rhapsode bench --model smollm2-135m\n"
     "rhapsode bench --prefill 512,2048 --decode 0,2048 --compare-llama --json",
     run_bench},
    {kConfig, "config", "[COMMAND]", 0, 1, "show every option's value and where it comes from",
     "rhapsode config\n"
     "rhapsode config generate --temperature 0.7",
     run_config},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

}  // namespace rhapsode::cli
